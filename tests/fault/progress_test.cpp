// SPDX-License-Identifier: Apache-2.0
// Operations move when somebody calls. These tests call in unusual orders, at unusual times and
// from several threads, and want right results, or the right error soon.
#include <atomic>

#include "tests/fault/outcomes.h"

namespace meron::test {
namespace {

constexpr int kRing = 1024;  // how far a rank may run ahead, as group.h and gather.h say

// Collectives on plain memory share their staging: the second must not move before the first has
// ended, also where only the second is waited for and a peer is late for both.
TEST(Progress, TheSecondOfTwoIsWaitedFor) {
  constexpr size_t kCount = 30'000;
  const Open open = open_shm(3);
  Job job(3, [&](int rank, Report& report) {
    Session session(open, rank);
    session.barrier();
    for (int round = 0; round < 3; ++round) {
      std::vector<float> first(kCount, static_cast<float>(rank + 1));
      std::vector<float> second(kCount, static_cast<float>(10 * (rank + 1)));
      meron_future futures[2] = {};
      if (rank == round) sleep_ns(80 * kMilli);
      MUST(meron_all_reduce_begin, &futures[0], session.world, first.data(), kCount, MERON_F32,
           MERON_REDUCE_OP_SUM);
      MUST(meron_all_reduce_begin, &futures[1], session.world, second.data(), kCount, MERON_F32,
           MERON_REDUCE_OP_SUM);
      session.wait(futures[1]);
      session.wait(futures[0]);
      for (size_t i = 0; i < kCount; ++i) {
        if (first[i] != 6.0f || second[i] != 60.0f) ++report.numbers[0];
      }
    }
    session.close();
  });
  expect_well(job);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(0, job[rank].numbers[0]) << "wrong sums";
}

// The same with a peer that never arrives: a wait for the second one reports it.
TEST(Progress, TheSecondOfTwoFailsWithTheFirst) {
  const Open open = open_shm(2);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.barrier();
    float data[2] = {};  // lives until the session is closed
    then_close(session, [&] {
      if (rank != 0) return;
      meron_future futures[2] = {};
      MUST(meron_all_reduce_begin, &futures[0], session.world, &data[0], 1, MERON_F32,
           MERON_REDUCE_OP_SUM);
      MUST(meron_all_reduce_begin, &futures[1], session.world, &data[1], 1, MERON_F32,
           MERON_REDUCE_OP_SUM);
      report.times[0] = now_ns();
      session.wait(futures[1]);
    });
  });
  expect_rank_1_missed(job);
}

// A rank that is a full ring ahead waits for a peer that waits for it: meanwhile its own operations
// must progress.
TEST(Progress, ARingAheadOfAPeerThatNeedsThisRank) {
  const Open open = open_shm(2, "zero0");
  Job job(2, [&](int rank, Report&) {
    Session session(open, rank);
    session.build();
    session.barrier();
    if (rank == 1) sleep_ns(50 * kMilli);
    const meron_future reduced = session.reduce_begin(0, 1.0f);
    if (rank == 1) session.wait(reduced);
    for (int i = 0; i < kRing + 200; ++i) {
      meron_future gather{};
      MUST(meron_gather_begin, &gather, &session.units[0], 1, nullptr);
      MUST(meron_future_release, gather);
    }
    if (rank == 0) session.wait(reduced);
    session.barrier();
    session.close();
  });
  expect_well(job);
}

// A barrier that no call polls during more than a ring of calls.
TEST(Progress, ABarrierBegunARingAgo) {
  const Open open = open_shm(2);
  Job job(2, [&](int rank, Report&) {
    Session session(open, rank);
    session.build();
    session.barrier();
    meron_future barrier{};
    MUST(meron_barrier_begin, &barrier, session.world);
    if (rank == 1) sleep_ns(50 * kMilli);
    for (int i = 0; i < kRing + 5; ++i) {
      meron_future gather{};
      MUST(meron_gather_begin, &gather, &session.units[static_cast<size_t>(i % 2)], 1, nullptr);
      MUST(meron_future_release, gather);
      // Rank 1 stays just behind, so that the two have different calls in one place of the ring.
      if (rank == 1 && i > 3) sleep_ns(kMilli / 100);
    }
    session.wait(barrier);
    session.barrier();
    session.close();
  });
  expect_well(job);
}

// Futures are released at once and gathers are cancelled: the ranks stay in step.
TEST(Progress, OperationsWithoutAWait) {
  const Open open = open_shm(3, "zero1");
  Job job(3, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    static float scratch[200][50];
    for (int i = 0; i < 200; ++i) {
      meron_future future{};
      MUST(meron_barrier_begin, &future, session.world);
      MUST(meron_future_release, future);
      MUST(meron_all_reduce_begin, &future, session.world, scratch[i], 50, MERON_F32,
           MERON_REDUCE_OP_SUM);
      MUST(meron_future_release, future);
      meron_future gather{};
      MUST(meron_gather_begin, &gather, session.units.data(), 2, nullptr);
      MUST(meron_future_release, gather);
      if (i % 50 == rank * 10) sleep_ns(5 * kMilli);
    }
    report.numbers[0] = session.all_reduce(100) == 3.0f ? 1 : 0;
    session.reduce(0, 1.0f);
    session.reduce(1, 1.0f);
    session.step();
    session.gather(0);
    session.close();
  });
  expect_well(job);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(1, job[rank].numbers[0]);
}

// Two ranks keep ringing each other's bells in a group of their own. Who waits in the world for the
// third, which is dead, must find out all the same.
TEST(Progress, TheDeadAreFoundAmidTraffic) {
  const Open open = open_shm(3);
  Job job(3, [&](int rank, Report& report) {
    Session session(open, rank);
    const int32_t pair[] = {0, 1};
    meron_group group{};
    MUST(meron_group_create, &group, session.context, pair, 2);
    session.barrier();
    report.mark = 1;
    if (rank == 2) {
      while (true) pause();
    }
    std::atomic<bool> done{false};
    std::thread traffic([&] {
      while (!done.load()) {
        meron_future future{};
        if (meron_barrier_begin(&future, group, nullptr) < 0) break;
        if (meron_future_wait(future, MERON_TIMEOUT_DEFAULT, nullptr) < 0) break;
        (void)meron_future_release(future, nullptr);
        ++report.numbers[0];
      }
    });
    CallFailed failed;
    try {
      session.barrier();
    } catch (const CallFailed& thrown) {
      failed = thrown;
    }
    done = true;
    MUST(meron_group_abort, group, "done");
    traffic.join();
    session.close();
    if (failed.status != MERON_OK) throw failed;
  });
  ASSERT_TRUE(job.reached(1));
  sleep_ns(50 * kMilli);
  const int64_t killed = now_ns();
  job.signal(2, SIGKILL);
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (int rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(job[rank].message);
    EXPECT_EQ(MERON_E_PEER_DEAD, job[rank].status);
    EXPECT_EQ(2, job[rank].peer);
    EXPECT_LT(job[rank].failed_ns - killed, 2 * kSecond);
    EXPECT_GT(job[rank].numbers[0], 10) << "there was no traffic";
  }
}

// Several threads wait for one future, others for theirs; whoever is awake drives them all.
TEST(Progress, SeveralThreadsWait) {
  const Open open = open_shm(2, "zero2");
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.barrier();
    for (int round = 0; round < 20; ++round) {
      if (rank == round % 2) sleep_ns(2 * kMilli);
      std::vector<meron_future> futures;
      for (size_t unit = 2; unit-- > 0;) futures.push_back(session.reduce_begin(unit, 1.0f));
      float sum = 1.0f;
      meron_future future{};
      MUST(meron_all_reduce_begin, &future, session.world, &sum, 1, MERON_F32, MERON_REDUCE_OP_SUM);
      futures.push_back(future);
      std::atomic<int> failed{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          const meron_future mine = futures[static_cast<size_t>(t) % futures.size()];
          if (meron_future_wait(mine, MERON_TIMEOUT_DEFAULT, nullptr) != MERON_OK) ++failed;
        });
      }
      for (std::thread& thread : threads) thread.join();
      report.numbers[0] += failed.load();
      if (sum != 2.0f) ++report.numbers[1];
      session.step();
    }
    session.close();
  });
  expect_well(job);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(0, job[rank].numbers[0]);
    EXPECT_EQ(0, job[rank].numbers[1]);
  }
}

// A caller with short waits, because other tasks run in between, gets the same errors.
TEST(Progress, PollsAndShortWaitsSeeTheDeadAndTheDeadline) {
  for (const bool dies : {true, false}) {
    for (const int64_t slice : {int64_t{0}, kMilli}) {
      SCOPED_TRACE((dies ? "dies, slices of " : "is late, slices of ") + std::to_string(slice));
      Open open;
      open.token = fresh_token();
      open.timeout_ns = dies ? 20 * kSecond : 300 * kMilli;
      Job job(2, [&](int rank, Report& report) {
        Session session(open, rank);
        report.mark = 1;
        while (rank == 1) pause();
        meron_future future{};
        MUST(meron_barrier_begin, &future, session.world);
        report.times[0] = now_ns();
        while (true) {
          if (slice == 0) {
            if (MUST(meron_future_poll, future) != MERON_IN_PROGRESS) return;
            sleep_ns(kMilli);
          } else if (MUST(meron_future_wait, future, slice) != MERON_IN_PROGRESS) {
            return;
          }
        }
      });
      ASSERT_TRUE(job.reached(1));
      const int64_t killed = now_ns();
      if (dies) job.signal(1, SIGKILL);
      while (__atomic_load_n(&job[0].ended, __ATOMIC_ACQUIRE) == 0 &&
             now_ns() < killed + 10 * kSecond) {
        sleep_ns(kMilli);
      }
      job.signal(1, SIGKILL);
      ASSERT_TRUE(job.wait(5 * kSecond));
      EXPECT_EQ(dies ? MERON_E_PEER_DEAD : MERON_E_TIMEOUT, job[0].status) << job[0].message;
      EXPECT_EQ(1, job[0].peer);
      EXPECT_LT(job[0].failed_ns - killed, 2 * kSecond);
    }
  }
}

}  // namespace
}  // namespace meron::test
