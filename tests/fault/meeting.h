// SPDX-License-Identifier: Apache-2.0
// Ranks that meet, and how that ends.
#pragma once

#include <string>
#include <vector>

#include "tests/fault/job.h"

namespace meron::test {

inline Open open_of(int ranks, int64_t timeout_ns = 10 * kSecond) {
  Open open;
  open.ranks = ranks;
  open.token = fresh_token();
  open.timeout_ns = timeout_ns;
  return open;
}

inline void meet(const Open& open, int rank) {
  Session session(open, rank);
  session.barrier();
  session.close();
}

inline void expect_met(Job& job) {
  ASSERT_TRUE(job.wait(20 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << "rank " << rank << ": " << job[rank].message;
  }
}

inline void expect_failed(const Report& report, meron_status status,
                          const std::vector<std::string>& texts) {
  SCOPED_TRACE(report.message);
  EXPECT_EQ(status, report.status) << meron_status_name(report.status);
  for (const std::string& text : texts) {
    EXPECT_NE(nullptr, std::strstr(report.message, text.c_str())) << "lacks: " << text;
  }
}

}  // namespace meron::test
