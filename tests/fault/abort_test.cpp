// SPDX-License-Identifier: Apache-2.0
// Aborts of a group: every rank gets the reason.
#include "tests/fault/contexts.h"

namespace meron::test {
namespace {

constexpr int64_t kAbortedWithin = kSecond;

TEST(Abort, ReachesEveryRankWithItsReason) {
  for (const char* transport : {"shm", "local"}) {
    const Open open = open_as(transport, 3);
    Shared<std::atomic<int64_t>> aborted(1);
    Job job(
        3,
        [&](int rank, Report& report) {
          Session session(open, rank);
          session.build();
          session.barrier();
          try {
            if (rank == 1) {
              sleep_ns(40 * kMilli);
              aborted[0] = now_ns();
              MUST(meron_group_abort, session.world, "the loss is 7e12");
            }
            session.update(0, 1.0f);  // waits for rank 1
          } catch (const CallFailed&) {
            report.numbers[0] = meron_group_status(session.world, nullptr);
            session.close();
            throw;
          }
        },
        threads(open));
    ASSERT_TRUE(job.wait(30 * kSecond));
    for (int rank = 0; rank < 3; ++rank) {
      const Report& report = job[rank];
      SCOPED_TRACE(std::string(transport) + ": " + report.message);
      EXPECT_EQ(MERON_E_ABORTED, report.status);
      EXPECT_EQ(MERON_E_ABORTED, report.numbers[0]);
      EXPECT_EQ(1, report.peer);
      EXPECT_NE(nullptr, std::strstr(report.message, "the loss is 7e12"));
      EXPECT_LT(report.failed_ns - aborted[0].load(), kAbortedWithin);
    }
  }
}

TEST(Abort, KeepsTheFirst200BytesOfAReason) {
  const Open open = open_as("self", 1);
  Job job(1, [&](int rank, Report&) {
    Session session(open, rank);
    const std::string reason = std::string(200, 'r') + "X";
    MUST(meron_group_abort, session.world, reason.c_str());
    MUST(meron_group_abort, session.world, nullptr);  // the first one holds
    session.barrier();
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  const std::string message = job[0].message;
  EXPECT_NE(std::string::npos, message.find(std::string(200, 'r'))) << message;
  EXPECT_EQ(std::string::npos, message.find('X'));
}

// An error breaks its group, and no other.
TEST(Abort, OfAGroupLeavesTheOthers) {
  for (const char* transport : {"shm", "local"}) {
    const Open open = open_as(transport, 4, "zero3");
    Job job(
        4,
        [&](int rank, Report& report) {
          Session session(open, rank);
          const int32_t low[] = {0, 1};
          const int32_t high[] = {3, 2};
          meron_group groups[2] = {};
          MUST(meron_group_create, &groups[0], session.context, low, 2);
          MUST(meron_group_create, &groups[1], session.context, high, 2);
          const meron_group own = groups[rank < 2 ? 0 : 1];
          report.numbers[0] = groups[rank < 2 ? 1 : 0].id == 0 ? 1 : 0;
          const meron_param param =
              session.register_param(rank < 2 ? "low" : "high", {33}, MERON_F32, own);
          session.make_unit(rank < 2 ? "low" : "high", {param});
          session.barrier(own);
          if (rank == 0) MUST(meron_group_abort, own, "to see what is left");
          if (rank < 2) {
            const auto in_own = [&] {
              try {
                session.barrier(own);
                return CallFailed{};
              } catch (const CallFailed& failed) {
                return failed;
              }
            };
            report.numbers[1] = in_own().status;
          }
          session.barrier();
          meron_future gather{};
          report.numbers[2] =
              meron_gather_begin(&gather, session.units.data(), 1, nullptr, nullptr);
          if (rank >= 2) session.barrier(own);
          report.numbers[3] = static_cast<int32_t>(session.all_reduce(10));
          session.close();
        },
        threads(open));
    expect_well(job);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(1, job[rank].numbers[0]) << "a group that this rank is not in";
      EXPECT_EQ(rank < 2 ? MERON_E_ABORTED : MERON_OK, job[rank].numbers[1]);
      EXPECT_EQ(rank < 2 ? MERON_E_ABORTED : MERON_OK, job[rank].numbers[2]);
      EXPECT_EQ(4, job[rank].numbers[3]);
    }
  }
}

// The other ranks cannot undo an update that this rank cancels before it could write.
TEST(Abort, ByACancelledUpdate) {
  const Open open = open_as("shm", 2);
  Job job(2, [&](int rank, Report&) {
    Session session(open, rank);
    session.build();
    if (rank == 0) {
      meron_future update{};
      MUST(meron_update_begin, &update, session.units.data(), 1);
      MUST(meron_future_release, update);
    } else {
      sleep_ns(50 * kMilli);  // so that rank 0's cannot have ended
    }
    try {
      session.update(0, 1.0f);
    } catch (const CallFailed&) {
      session.close();
      throw;
    }
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(MERON_E_ABORTED, job[rank].status) << job[rank].message;
    EXPECT_EQ(0, job[rank].peer);
  }
}

}  // namespace
}  // namespace meron::test
