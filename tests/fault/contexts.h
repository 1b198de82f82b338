// SPDX-License-Identifier: Apache-2.0
// Contexts whose ends are tested: how they are opened, trained with, and end well.
#pragma once

#include <cstring>
#include <string>

#include "tests/fault/job.h"

namespace meron::test {

inline Open open_as(const char* transport, int ranks, const std::string& plan = "zero3") {
  Open open;
  open.transport = transport;
  open.ranks = ranks;
  open.plan = plan;
  open.token = fresh_token();
  return open;
}

inline bool threads(const Open& open) {
  return std::strcmp(open.transport, "local") == 0;
}

inline void expect_well(Job& job) {
  ASSERT_TRUE(job.wait(60 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status)
        << "rank " << rank << ": " << job[rank].function << ": " << job[rank].message;
    EXPECT_TRUE(exited_well(job.status(rank)));
  }
}

inline void train(Session& session, int steps) {
  for (int step = 0; step < steps; ++step) {
    session.gather(0);
    for (size_t unit = 2; unit-- > 0;) {
      session.reduce(unit, 0.1f * static_cast<float>(session.rank + step % 5 + 1));
    }
    session.step();
  }
}

inline int64_t bits_of(double value) {
  int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace meron::test
