// SPDX-License-Identifier: Apache-2.0
// Jobs in which all ranks succeed, or report the one that left.
#pragma once

#include "tests/fault/job.h"

namespace meron::test {

inline Open open_shm(int ranks, const std::string& plan = "zero3") {
  Open open;
  open.ranks = ranks;
  open.plan = plan;
  open.token = fresh_token();
  open.timeout_ns = 10 * kSecond;
  return open;
}

inline void expect_well(Job& job) {
  ASSERT_TRUE(job.wait(30 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << "rank " << rank << ": " << job[rank].message;
    EXPECT_TRUE(exited_well(job.status(rank)));
  }
}

// Rank 0 got the error that rank 1 had closed within a second from its times[0].
inline void expect_rank_1_missed(Job& job) {
  ASSERT_TRUE(job.wait(30 * kSecond)) << "a rank hangs";
  EXPECT_EQ(MERON_E_PEER_CLOSED, job[0].status) << job[0].message;
  EXPECT_EQ(1, job[0].peer);
  EXPECT_LT(job[0].failed_ns - job[0].times[0], kSecond);
}

// Closes the session whether the calls of `body` are well or one fails, which the report gets.
template <class Body>
void then_close(Session& session, const Body& body) {
  try {
    body();
  } catch (const CallFailed&) {
    session.close();
    throw;
  }
  session.close();
}

}  // namespace meron::test
