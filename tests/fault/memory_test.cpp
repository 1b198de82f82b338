// SPDX-License-Identifier: Apache-2.0
// A rank has too little memory: its error names the state that does not fit, and its peers' errors
// name the rank, at once. There is no SIGBUS, and every wait ends.
#include <sys/syscall.h>

#include "tests/fault/job.h"
#include "tests/unit/os/child_process.h"

namespace meron::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

Open open_of(const char* plan, std::function<void(int, meron_context_options&)> adjust) {
  Open open;
  open.plan = plan;
  open.token = fresh_token();
  open.timeout_ns = 10 * kSecond;
  open.adjust = std::move(adjust);
  return open;
}

// A unit of 8 MiB of f32 weights, so 4 MiB on each of two ranks.
meron_unit build_large(Session& session) {
  const meron_param weight = session.register_param("large.weight", {2048, 1023});
  const meron_param bias = session.register_param("large.bias", {2048});
  return session.make_unit("large", {weight, bias});
}

void expect_no_memory(const Report& report, int rank, const char* subject) {
  SCOPED_TRACE(std::string(report.function) + ": " + report.message);
  EXPECT_EQ(MERON_E_NO_MEMORY, report.status) << meron_status_name(report.status);
  EXPECT_EQ(rank, report.rank);
  EXPECT_NE(nullptr, std::strstr(report.message, subject)) << "does not say for what";
  EXPECT_NE(nullptr, std::strstr(report.advice, "host_memory_limit")) << report.advice;
}

// Each part of the state counts against the limit: weights, gradients, optimizer states.
TEST(MemoryLimit, NamesTheStateThatExceedsIt) {
  const struct {
    uint64_t limit;
    const char* subject;
    bool collective;
  } cases[] = {{3 * kMiB, "values of unit 'large'", true},
               {6 * kMiB, "reduced gradient of unit 'large'", true},
               {14 * kMiB, "unit 'large'", true},
               {22 * kMiB, "gradient bucket for unit 'large'", false}};
  for (const auto& each : cases) {
    SCOPED_TRACE(each.limit / kMiB);
    const Open open = open_of("zero3", [&](int rank, meron_context_options& options) {
      if (rank == 1) options.host_memory_limit = each.limit;
    });
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      try {
        build_large(session);
        session.make_optimizer();
        session.reduce(0, 1.0f);
      } catch (const CallFailed& failed) {
        report.numbers[0] = meron_group_status(session.world, nullptr);
        report.times[0] = now_ns();
        MUST(meron_context_close, session.context);
        throw;
      }
      session.close();
    });
    ASSERT_TRUE(job.wait(20 * kSecond)) << "a rank hangs";
    expect_no_memory(job[1], 1, each.subject);
    if (!each.collective) {
      // A rank's own call leaves the group unchanged; the peer waits for a call that does not
      // follow.
      EXPECT_EQ(MERON_OK, job[1].numbers[0]);
      EXPECT_EQ(MERON_E_PEER_CLOSED, job[0].status) << job[0].message;
      EXPECT_EQ(1, job[0].peer);
      continue;
    }
    // Objects that one rank lacks can serve no rank: the group is broken, with the same error.
    EXPECT_EQ(MERON_E_NO_MEMORY, job[1].numbers[0]);
    expect_no_memory(job[0], 0, each.subject);
    EXPECT_NE(nullptr, std::strstr(job[0].message, "found by rank 1"));
    EXPECT_LT(job[0].failed_ns - job[1].failed_ns, kSecond);
  }
}

// A world of one has no peers to harm: it continues, and the failed allocation is not counted.
TEST(MemoryLimit, LeavesALoneRankUsable) {
  Open open = open_of(
      "zero3", [](int, meron_context_options& options) { options.host_memory_limit = 3 * kMiB; });
  open.ranks = 1;
  open.transport = "self";
  Job job(1, [&](int rank, Report& report) {
    Session session(open, rank);
    const meron_param weight = session.register_param("large.weight", {2048, 1023});
    meron_unit unit{};
    const CallFailed failed =
        FAILURE_OF(meron_unit_create, &unit, session.context, "large", &weight, 1);
    session.build();
    session.update(0, 2.0f);
    session.gather(0);
    session.reduce(0, 1.0f);
    session.reduce(1, 1.0f);
    session.step();
    meron_stats stats{};
    stats.struct_size = sizeof stats;
    MUST(meron_context_stats, &stats, session.context);
    report.numbers[0] = static_cast<int32_t>(stats.peak_bytes);
    session.close();
    record(report, failed);
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  expect_no_memory(job[0], 0, "values of unit 'large'");
  EXPECT_GT(job[0].numbers[0], 0);
  EXPECT_LT(job[0].numbers[0], static_cast<int32_t>(kMiB)) << "the refused unit is still counted";
}

// A failed copy takes no memory, however often the trainer tries again.
TEST(MemoryLimit, HoldsNothingForRefusedCopies) {
  Open open = open_of("zero3", nullptr);
  open.ranks = 1;
  open.transport = "self";
  Job job(1, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    const auto staging_bytes = [&] {
      meron_stats stats{};
      stats.struct_size = sizeof stats;
      MUST(meron_context_stats, &stats, session.context);
      return static_cast<int64_t>(stats.staging_bytes);
    };
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.mode = MERON_GATHER_COPY;
    const auto refuse = [&](std::vector<meron_unit> units) {
      meron_future copy{};
      return FAILURE_OF(meron_gather_begin, &copy, units.data(), units.size(), &options).status;
    };
    report.times[0] = staging_bytes();
    meron_future update{};
    MUST(meron_update_begin, &update, session.units.data(), 1);
    MUST(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    report.numbers[0] = refuse({session.units[0]});
    MUST(meron_update_publish, update);
    report.numbers[1] = refuse({session.units[1], session.units[1]});
    MUST(meron_group_abort, session.world, "a test");
    report.numbers[2] = refuse({session.units[0]});
    report.times[1] = staging_bytes();
    session.close();
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  EXPECT_EQ(MERON_OK, job[0].status) << job[0].message;
  EXPECT_EQ(MERON_E_STATE, job[0].numbers[0]);
  EXPECT_EQ(MERON_E_DUPLICATE, job[0].numbers[1]);
  EXPECT_EQ(MERON_E_ABORTED, job[0].numbers[2]);
  EXPECT_EQ(job[0].times[0], job[0].times[1]);
}

// Rank 1 has no memory for a group, and stays alive. The others have the group. Waits in it and in
// the world return the error at once.
TEST(HostMemory, ThatOneRankLacksForAGroupIsReportedToAll) {
  const Open open = [] {
    Open shm = open_of("zero3", nullptr);
    shm.ranks = 3;
    return shm;
  }();
  Shared<std::atomic<int>> made(1), ended(1);
  Job job(3, [&](int rank, Report& report) {
    Session session(open, rank);
    session.barrier();
    if (rank == 1) {
      constexpr uint32_t kPopulateWrite = 23;  // MADV_POPULATE_WRITE
      if (!deny_syscall(SYS_madvise, ENOMEM, kPopulateWrite)) std::abort();
      while (made[0].load() < 2) sleep_ns(kMilli);
    }
    const int32_t members[] = {0, 1};
    meron_group group{};
    try {
      MUST(meron_group_create, &group, session.context, members, 2);
      ++made[0];
      if (rank == 0) {
        session.barrier(group);
      } else {
        session.barrier();
      }
    } catch (const CallFailed& failed) {
      record(report, failed);
    }
    if (rank == 0) report.numbers[0] = meron_group_status(group, nullptr);
    report.numbers[1] = meron_group_status(session.world, nullptr);
    ++ended[0];
    while (ended[0].load() < 3) sleep_ns(kMilli);
  });
  ASSERT_TRUE(job.wait(20 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(std::string(job[rank].function) + ": " + job[rank].message);
    EXPECT_EQ(MERON_E_NO_MEMORY, job[rank].status) << meron_status_name(job[rank].status);
    EXPECT_EQ(1, job[rank].peer);
    EXPECT_EQ(MERON_E_NO_MEMORY, job[rank].numbers[1]);
    EXPECT_LT(job[rank].failed_ns - job[1].failed_ns, kSecond);
  }
  EXPECT_STREQ("meron_group_create", job[1].function);
  EXPECT_STREQ("meron_future_wait", job[0].function);
  EXPECT_EQ(MERON_E_NO_MEMORY, job[0].numbers[0]);
}

TEST(ArenaReserve, ThatIsTooSmallIsReported) {
  for (const char* plan : {"zero0", "zero3"}) {
    SCOPED_TRACE(plan);
    const Open open = open_of(
        plan, [](int, meron_context_options& options) { options.arena_reserve = 2 * kMiB; });
    Job job(2, [&](int rank, Report&) {
      Session session(open, rank);
      try {
        build_large(session);
      } catch (const CallFailed&) {
        session.close();
        throw;
      }
    });
    ASSERT_TRUE(job.wait(20 * kSecond));
    for (int rank = 0; rank < 2; ++rank) {
      SCOPED_TRACE(job[rank].message);
      EXPECT_EQ(MERON_E_NO_MEMORY, job[rank].status);
      EXPECT_NE(nullptr, std::strstr(job[rank].message, "unit 'large'"));
      EXPECT_NE(nullptr, std::strstr(job[rank].advice, "arena_reserve")) << job[rank].advice;
    }
  }
}

// Containers give 64 MiB of /dev/shm. Meron does not allocate from it.
TEST(DevShm, ThatIsSmallDoesNotMatterAndNothingIsLeft) {
  const Jail jail("size=64k");
  if (!jail.is_private()) GTEST_SKIP() << "needs the right to mount a /dev/shm of its own";
  const Open open = open_of("zero3", nullptr);
  Job job(
      3,
      [&](int rank, Report&) {
        Open own = open;
        own.ranks = 3;
        Session session(own, rank);
        build_large(session);
        session.make_optimizer();
        for (int step = 0; step < 3; ++step) {
          session.gather(0);
          session.reduce(0, 1.0f);
          session.step();
        }
        session.close();
      },
      false, &jail);
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
    EXPECT_TRUE(exited_well(job.status(rank))) << "status " << job.status(rank);
  }
  EXPECT_TRUE(jail.leftovers().empty());
}

}  // namespace
}  // namespace meron::test
