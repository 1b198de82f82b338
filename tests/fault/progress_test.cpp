// SPDX-License-Identifier: Apache-2.0
// Operations move when somebody calls. These tests call in unusual orders, at unusual times and
// from several threads, and want right results, or the right error soon.
#include <atomic>
#include <cmath>

#include "tests/fault/job.h"

namespace meron::test {
namespace {

constexpr int kRing = 1024;  // how far a rank may run ahead, as group.h and gather.h say

Open open_shm(int ranks, const std::string& plan = "zero3") {
  Open open;
  open.ranks = ranks;
  open.plan = plan;
  open.token = fresh_token();
  open.timeout_ns = 10 * kSecond;
  return open;
}

void expect_well(Job& job) {
  ASSERT_TRUE(job.wait(30 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << "rank " << rank << ": " << job[rank].message;
    EXPECT_TRUE(exited_well(job.status(rank)));
  }
}

// Rank 0 was told within a second, from its times[0] on, that rank 1 had closed.
void expect_rank_1_missed(Job& job) {
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
           MERON_SUM);
      MUST(meron_all_reduce_begin, &futures[1], session.world, second.data(), kCount, MERON_F32,
           MERON_SUM);
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

// The same with a peer that will never come: whoever waits for the second hears of it.
TEST(Progress, TheSecondOfTwoFailsWithTheFirst) {
  const Open open = open_shm(2);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.barrier();
    float data[2] = {};  // lives until the session is closed
    then_close(session, [&] {
      if (rank != 0) return;
      meron_future futures[2] = {};
      MUST(meron_all_reduce_begin, &futures[0], session.world, &data[0], 1, MERON_F32, MERON_SUM);
      MUST(meron_all_reduce_begin, &futures[1], session.world, &data[1], 1, MERON_F32, MERON_SUM);
      report.times[0] = now_ns();
      session.wait(futures[1]);
    });
  });
  expect_rank_1_missed(job);
}

// All buckets are held by reductions for which a peer that closed never came: who waits for a
// bucket hears of it, although nobody is missing in that wait itself.
TEST(Progress, ABucketThatIsNeverFreeFailsWithItsReduction) {
  constexpr size_t kCount = 1000;
  const Open open = open_shm(2);  // zero3: two buckets
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    for (const char* name : {"a", "b", "c"}) {
      session.make_unit(name, {session.register_param(std::string(name) + ".weight", {kCount})});
    }
    session.barrier();
    then_close(session, [&] {
      if (rank != 0) return;
      const std::vector<float> gradient(kCount, 1.0f);
      report.times[0] = now_ns();
      for (size_t i = 0; i < 3; ++i) {
        const meron_source source = {session.params[i], gradient.data(), kCount, MERON_F32, 0};
        meron_future done = {0};
        MUST(meron_reduce_begin, &done, session.units[i], &source, 1, nullptr);
      }
    });
  });
  expect_rank_1_missed(job);
}

// What a rank gives as the gradient of its unit `index`, of 1000 elements.
void begin_reduction(Session& session, size_t index) {
  const std::vector<float> gradient(1000, 1.0f);
  const meron_source source = {session.params[index], gradient.data(), gradient.size(), MERON_F32,
                               0};
  meron_future done{};
  MUST(meron_reduce_begin, &done, session.units[index], &source, 1, nullptr);
}

// Buckets are the rank's, not a group's: who waits for one that a reduction of another group keeps
// hears of that group's end, and its own group works on.
TEST(Progress, ABucketThatAnotherGroupKeepsFailsWithThatGroup) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies ? "killed" : "closed");
    const Open open = open_shm(3);  // zero3: two buckets
    Job job(3, [&](int rank, Report& report) {
      Session session(open, rank);
      meron_group broken{}, whole{};
      const int32_t of_broken[] = {0, 1}, of_whole[] = {0, 2};
      MUST(meron_group_create, &broken, session.context, of_broken, 2);
      MUST(meron_group_create, &whole, session.context, of_whole, 2);
      for (const char* name : {"a", "b", "c"}) {
        const meron_group group = *name == 'c' ? whole : broken;
        if (group.id == 0) continue;
        const std::string param = std::string(name) + ".weight";
        session.make_unit(name, {session.register_param(param, {1000}, MERON_F32, group)});
      }
      session.barrier();
      if (rank == 1) {
        if (dies) raise(SIGKILL);
        session.close();
        return;
      }
      if (rank == 0) {
        begin_reduction(session, 0);
        begin_reduction(session, 1);
        report.times[0] = now_ns();
        try {
          begin_reduction(session, 2);
        } catch (const CallFailed& failed) {
          record(report, failed);
        }
        try {  // now at once
          begin_reduction(session, 2);
        } catch (const CallFailed& failed) {
          report.numbers[0] = failed.status;
        }
      }
      session.barrier(whole);
      report.mark = 1;
      session.close();
    });
    ASSERT_TRUE(job.wait(30 * kSecond));
    EXPECT_EQ(dies ? MERON_E_PEER_DEAD : MERON_E_PEER_CLOSED, job[0].status) << job[0].message;
    EXPECT_EQ(job[0].status, job[0].numbers[0]);
    EXPECT_EQ(1, job[0].peer);
    EXPECT_LT(job[0].failed_ns - job[0].times[0], kSecond);
    EXPECT_EQ(1, job[0].mark.load());
    EXPECT_EQ(1, job[2].mark.load()) << job[2].message;
  }
}

// A wait for a bucket that was given up must not take one later: nobody would ever give it back.
TEST(Progress, AWaitForABucketThatWasGivenUpTakesNone) {
  Open open = open_shm(2);  // zero3: two buckets
  Shared<std::atomic<int>> stopping(1), stopped(1);
  open.adjust = [&](int, meron_context_options& options) {
    options.should_stop = [](void* user) -> int32_t {
      return static_cast<std::atomic<int>*>(user)->load();
    };
    options.should_stop_user = stopping.data();
  };
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      session.make_unit(name, {session.register_param(std::string(name) + ".weight", {1000})});
    }
    session.barrier();
    while (rank == 1 && stopped[0].load() == 0) sleep_ns(kMilli);
    begin_reduction(session, 0);
    begin_reduction(session, 1);
    if (rank == 0) {
      stopping[0] = 1;
      meron_view view{};
      report.numbers[0] =
          FAILURE_OF(meron_gradient_view, &view, session.params[2], uint64_t{0}).status;
      stopping[0] = 0;
      stopped[0] = 1;
    }
    MUST(meron_reduce_wait, session.units.data(), 2, MERON_TIMEOUT_DEFAULT);
    meron_view views[2] = {};
    MUST(meron_gradient_view, &views[0], session.params[3], uint64_t{0});
    MUST(meron_gradient_view, &views[1], session.params[4], uint64_t{0});
    session.close();
  });
  expect_well(job);
  EXPECT_EQ(MERON_E_CANCELLED, job[0].numbers[0]);
}

// The same where the reduction has ended here, and a peer that has closed will never have read it.
// That peer has no number in the waiter's own group.
TEST(Progress, ABucketThatAnotherGroupStillReadsFailsWithThatGroup) {
  const Open open = open_shm(4);
  Shared<std::atomic<int>> gone(1), told(1);
  Job job(4, [&](int rank, Report& report) {
    Session session(open, rank);
    meron_group pair{};
    const int32_t members[] = {0, 1};
    MUST(meron_group_create, &pair, session.context, members, 2);
    for (const char* name : {"a", "b", "c"}) {
      const meron_group group = *name == 'c' ? pair : session.world;
      if (group.id == 0) continue;
      const std::string param = std::string(name) + ".weight";
      session.make_unit(name, {session.register_param(param, {1000}, MERON_F32, group)});
    }
    session.barrier();
    while (rank != 3 && gone[0].load() == 0) sleep_ns(kMilli);
    begin_reduction(session, 0);
    begin_reduction(session, 1);
    if (rank == 3) {
      session.close();
      gone[0] = 1;
      return;
    }
    MUST(meron_reduce_wait, session.units.data(), 2, MERON_TIMEOUT_DEFAULT);
    report.times[0] = now_ns();
    if (rank != 2) {
      try {
        begin_reduction(session, 2);
      } catch (const CallFailed& failed) {
        record(report, failed);
      }
      ++told[0];
    }
    while (told[0].load() < 2) sleep_ns(kMilli);
    session.close();
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(MERON_E_PEER_CLOSED, job[rank].status) << job[rank].message;
    EXPECT_EQ(3, job[rank].peer);
    EXPECT_STREQ("wait for the gradient bucket of unit 'c'", job[rank].operation);
    EXPECT_LT(job[rank].failed_ns - job[rank].times[0], kSecond);
  }
}

// A rank that is a whole ring ahead waits for a peer that waits for it: its own operations must go
// on meanwhile.
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
      meron_gather gather{};
      MUST(meron_gather_begin, &gather, &session.units[0], 1, nullptr);
      MUST(meron_gather_release, gather);
    }
    if (rank == 0) session.wait(reduced);
    session.barrier();
    session.close();
  });
  expect_well(job);
}

// A barrier that nobody looked at while more than a ring of calls went by.
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
      meron_gather gather{};
      MUST(meron_gather_begin, &gather, &session.units[static_cast<size_t>(i % 2)], 1, nullptr);
      MUST(meron_gather_release, gather);
      // Rank 1 stays just behind, so that the two have different calls in one place of the ring.
      if (rank == 1 && i > 3) sleep_ns(kMilli / 100);
    }
    session.wait(barrier);
    session.barrier();
    session.close();
  });
  expect_well(job);
}

// Futures that are released at once, gathers that are given up: the ranks stay in step.
TEST(Progress, OperationsThatNobodyWaitsFor) {
  const Open open = open_shm(3, "zero1");
  Job job(3, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    static float scratch[200][50];
    for (int i = 0; i < 200; ++i) {
      meron_future future{};
      MUST(meron_barrier_begin, &future, session.world);
      MUST(meron_future_release, future);
      MUST(meron_all_reduce_begin, &future, session.world, scratch[i], 50, MERON_F32, MERON_SUM);
      MUST(meron_future_release, future);
      meron_gather gather{};
      MUST(meron_gather_begin, &gather, session.units.data(), 2, nullptr);
      MUST(meron_gather_release, gather);
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

// Between the begin of a step and its end the units belong to the step, whether or not it has come
// to them yet: what does not fit is refused on this rank, and the step goes on.
TEST(Progress, AUnitOfAStepUnderWayIsRefused) {
  for (const char* plan : {"zero0", "zero3"}) {
    const Open open = open_shm(2, plan);
    Shared<std::atomic<int>> asked(1);
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.reduce(0, 1.0f);
      session.reduce(1, 1.0f);
      session.barrier();
      while (rank == 1 && asked[0].load() == 0) sleep_ns(kMilli);
      meron_future step{};
      MUST(meron_optimizer_step_begin, &step, session.optimizer);
      if (rank == 0) {
        meron_gather gather{};
        meron_update update{};
        meron_future second{};
        meron_view view{};
        const meron_unit* const units = session.units.data();
        report.numbers[0] = FAILURE_OF(meron_gather_begin, &gather, units, 1, nullptr).status;
        report.numbers[1] = FAILURE_OF(meron_update_begin, &update, units, 2).status;
        report.numbers[2] =
            FAILURE_OF(meron_optimizer_step_begin, &second, session.optimizer).status;
        report.numbers[3] = FAILURE_OF(meron_gradient_view, &view, session.params[0], 0).status;
        report.numbers[4] = FAILURE_OF(meron_reduce_discard, units[1]).status;
        asked[0] = 1;
      }
      session.wait(step);
      session.gather(0);
      session.close();
    });
    expect_well(job);
    for (int call = 0; call < 5; ++call) {
      EXPECT_EQ(MERON_E_STATE, job[0].numbers[call]) << plan << ": call " << call;
    }
  }
}

// One rank's NaN: no rank steps, all say so, and the next step is right.
TEST(Progress, AStepThatIsNotFiniteChangesNothing) {
  const Open open = open_shm(3, "zero2");
  Job job(3, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.update(0, 1.0f);
    const double before = session.gather(0);
    session.reduce(1, rank == 1 ? NAN : 1.0f);
    session.reduce(0, 1.0f);
    meron_future step{};
    MUST(meron_optimizer_step_begin, &step, session.optimizer);
    report.numbers[0] = FAILURE_OF(meron_future_wait, step, MERON_TIMEOUT_DEFAULT).status;
    MUST(meron_future_release, step);
    report.numbers[1] = session.gather(0) == before ? 1 : 0;
    session.reduce(1, 1.0f);
    session.reduce(0, 1.0f);
    session.step();
    report.numbers[2] = session.gather(0) < before ? 1 : 0;
    session.close();
  });
  expect_well(job);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(MERON_E_NONFINITE, job[rank].numbers[0]);
    EXPECT_EQ(1, job[rank].numbers[1]) << "values changed";
    EXPECT_EQ(1, job[rank].numbers[2]) << "no step after it";
  }
}

// An optimizer whose handle goes during a step keeps its states until the step has ended.
TEST(Progress, AnOptimizerReleasedDuringItsStep) {
  const Open open = open_shm(2);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.update(0, 1.0f);
    session.reduce(0, 1.0f);
    session.reduce(1, 1.0f);
    if (rank == 1) sleep_ns(30 * kMilli);
    meron_future step{};
    MUST(meron_optimizer_step_begin, &step, session.optimizer);
    MUST(meron_optimizer_release, session.optimizer);
    session.wait(step);
    report.numbers[0] = session.gather(0) < 37 * 13 ? 1 : 0;  // the step went downhill
    session.make_optimizer();
    session.close();
  });
  expect_well(job);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(1, job[rank].numbers[0]);
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
      MUST(meron_all_reduce_begin, &future, session.world, &sum, 1, MERON_F32, MERON_SUM);
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

// Who never waits for long, because other tasks are to run in between, hears of the same as others.
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
