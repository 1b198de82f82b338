// SPDX-License-Identifier: Apache-2.0
// Waits that end before what they wait for: by their time, by should_stop; and what the log reports
// of slow ones.
#include "tests/fault/stop.h"

namespace meron::test {
namespace {

constexpr int64_t kTolerance = kSecond;

// A wait that ends early leaves the operation pending.
TEST(Waiting, WithATimeoutCanContinueLater) {
  Open open;
  open.token = fresh_token();
  Shared<Stop> stop(1);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.barrier();
    float value = static_cast<float>(rank + 1);
    meron_future future{};
    if (rank == 1) {
      stop[0].here(true);
      MUST(meron_all_reduce_begin, &future, session.world, &value, 1, MERON_F32,
           MERON_REDUCE_OP_SUM);
    } else {
      stop[0].wait();
      MUST(meron_all_reduce_begin, &future, session.world, &value, 1, MERON_F32,
           MERON_REDUCE_OP_SUM);
      report.numbers[0] = MUST(meron_future_poll, future);
      report.numbers[1] = MUST(meron_future_wait, future, 0);
      report.times[0] = now_ns();
      report.numbers[2] = MUST(meron_future_wait, future, 50 * kMilli);
      report.times[0] = now_ns() - report.times[0];
      MUST(meron_context_progress, session.context);
      stop[0].release(true);
    }
    report.numbers[3] = MUST(meron_future_wait, future, 20 * kSecond);
    report.numbers[4] = MUST(meron_future_poll, future);
    report.numbers[5] = static_cast<int32_t>(value);
    session.close();
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  EXPECT_EQ(MERON_IN_PROGRESS, job[0].numbers[0]);
  EXPECT_EQ(MERON_IN_PROGRESS, job[0].numbers[1]);
  EXPECT_EQ(MERON_IN_PROGRESS, job[0].numbers[2]);
  EXPECT_GE(job[0].times[0], 50 * kMilli);
  EXPECT_LT(job[0].times[0], 50 * kMilli + kTolerance);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(MERON_OK, job[rank].status) << job[rank].message;
    EXPECT_EQ(MERON_OK, job[rank].numbers[3]);
    EXPECT_EQ(MERON_OK, job[rank].numbers[4]);
    EXPECT_EQ(3, job[rank].numbers[5]);
  }
}

// should_stop ends any call that waits. The operation continues, and the call can be made again.
TEST(Waiting, EndsWhenShouldStopReturnsTrue) {
  struct Asked {
    std::atomic<int> stop;
    std::atomic<int> times;
  };
  Shared<Asked> asked(1);
  Open open;
  open.token = fresh_token();
  open.plan = R"({"preset": "zero2", "gradient_buckets": 1})";
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank != 0) return;
    options.should_stop_user = asked.data();
    options.should_stop = [](void* user) -> int32_t {
      auto* state = static_cast<Asked*>(user);
      ++state->times;
      return state->stop.load();
    };
  };
  Shared<Stop> stop(1);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.barrier();
    if (rank == 1) {
      const meron_future future = session.reduce_begin(0, 1.0f);
      stop[0].here(true);
      session.wait(future);
    } else {
      stop[0].wait();
      session.reduce(0, 1.0f);
      MUST(meron_reduce_discard, session.units[0]);
      meron_view view{};
      meron_future barrier{};
      MUST(meron_barrier_begin, &barrier, session.world);
      asked[0].stop = 1;
      const int64_t begun = now_ns();
      const CallFailed wait = FAILURE_OF(meron_future_wait, barrier, MERON_TIMEOUT_DEFAULT);
      const CallFailed place = FAILURE_OF(meron_gradient_view, &view, session.params[2], 0);
      report.times[0] = now_ns() - begun;
      report.numbers[0] = wait.status;
      report.numbers[1] = place.status;
      copy_text(report.note, wait.message);
      asked[0].stop = 0;
      report.numbers[2] = meron_group_status(session.world, nullptr);
      stop[0].release(true);
      MUST(meron_gradient_view, &view, session.params[2], 0);
      session.wait(barrier);
    }
    if (rank == 1) {
      MUST(meron_reduce_discard, session.units[0]);
      session.barrier();
    }
    session.barrier();
    session.close();
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
  EXPECT_EQ(MERON_E_CANCELLED, job[0].numbers[0]) << job[0].note;
  EXPECT_EQ(MERON_E_CANCELLED, job[0].numbers[1]);
  EXPECT_EQ(MERON_OK, job[0].numbers[2]) << "a cancelled wait broke the group";
  EXPECT_LT(job[0].times[0], 2 * kTolerance);
  EXPECT_GE(asked[0].times.load(), 2);
}

// Rank 0 is a ring ahead of rank 1, so its next call waits. should_stop ends that wait, and the
// call is made again.
void expect_made_again(const char* plan, const std::function<CallFailed(Session&)>& call,
                       const std::function<void(Session&)>& before, float expected) {
  Shared<std::atomic<int>> stop(2);  // whether to, and how many calls rank 0 has made
  Open open;
  open.token = fresh_token();
  open.plan = plan;
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank != 0) return;
    options.should_stop_user = stop.data();
    options.should_stop = [](void* user) -> int32_t {
      return static_cast<std::atomic<int>*>(user)->load();
    };
  };
  Shared<Stop> late(1);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build(1);
    before(session);
    session.barrier();
    if (rank == 1) late[0].here(true);
    // True until the ring is full.
    const auto post = [&] {
      meron_future future{};
      const CallFailed failed = FAILURE_OF(meron_barrier_begin, &future, session.world);
      if (failed.status < 0 && failed.status != MERON_E_CANCELLED) throw failed;
      if (failed.status == MERON_OK) MUST(meron_future_release, future);
      return failed.status == MERON_OK;
    };
    if (rank == 0) {
      late[0].wait();
      stop[0] = 1;
      while (post()) ++stop[1];
      report.numbers[0] = call(session).status;
      stop[0] = 0;
      late[0].release(true);
    } else {
      for (int i = 0; i < stop[1]; ++i) post();
    }
    const CallFailed failed = call(session);
    if (failed.status < 0) throw failed;
    MUST(meron_reduce_wait, session.units.data(), 1, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    MUST(meron_reduced_view, &view, session.params[0]);
    for (uint64_t i = 0; i < view.count; ++i) {
      report.numbers[1] += static_cast<const float*>(view.data)[i] != expected;
    }
    MUST(meron_reduce_discard, session.units[0]);
    session.barrier();
    session.close();
  });
  ASSERT_TRUE(job.wait(30 * kSecond)) << plan << ": " << job[0].message;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << plan << ": " << job[rank].message;
    EXPECT_EQ(0, job[rank].numbers[1]) << plan << ": wrong sums on rank " << rank;
  }
  EXPECT_EQ(MERON_E_CANCELLED, job[0].numbers[0]) << plan;
}

TEST(Waiting, ACancelledReductionAddsItsGradientOnce) {
  for (const char* plan : {"zero1", "zero2", "zero3"}) {
    const std::vector<float> gradient(37 * 13, 2.0f);
    expect_made_again(
        plan,
        [&](Session& session) {
          const meron_source source = {session.params[0], gradient.data(), gradient.size(),
                                       MERON_F32, 0};
          return FAILURE_OF(meron_reduce_begin, nullptr, session.units[0], &source, 1, nullptr);
        },
        [](Session&) {}, 2.0f);
  }
}

TEST(Waiting, ACancelledEndOfAnAccumulationCanBeRepeated) {
  for (const char* plan : {"zero1", "zero2", "zero3", R"j({"preset": "mics(1)"})j"}) {
    expect_made_again(
        plan,
        [&](Session& session) {
          meron_future future{};
          return FAILURE_OF(meron_reduce_finish_begin, &future, session.units[0], nullptr);
        },
        [](Session& session) {
          meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
          options.boundary = 0;
          session.reduce(0, 2.0f, &options);
        },
        2.0f);
  }
}

// If a rank lets a wait in the world reach the deadline, the world breaks. A group that both ranks
// created before continues to work, also if that rank does not call it for a while.
TEST(Waiting, InAGroupContinuesAfterTheWorldsDeadline) {
  Open open;
  open.token = fresh_token();
  open.timeout_ns = 2 * kSecond;
  Shared<std::atomic<int>> heard(1);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    const int32_t members[] = {0, 1};
    meron_group group{};
    MUST(meron_group_create, &group, session.context, members, 2);
    if (rank == 0) {
      try {
        session.barrier();
      } catch (const CallFailed& failed) {
        report.numbers[0] = failed.status;
      }
      ++heard[0];
    } else {
      while (heard[0].load() == 0) sleep_ns(kMilli);
      sleep_ns(kSecond);
      report.numbers[0] = meron_group_status(session.world, nullptr);
    }
    session.barrier(group);
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(MERON_OK, job[rank].status) << job[rank].message;
    EXPECT_EQ(MERON_E_TIMEOUT, job[rank].numbers[0]);
  }
}

TEST(Waiting, ForRanksToArriveEndsWhenShouldStopReturnsTrue) {
  for (const char* transport : {"shm", "local"}) {
    for (const int rank : {0, 1}) {
      Open open;
      open.transport = transport;
      open.token = fresh_token();
      open.adjust = [](int, meron_context_options& options) {
        options.should_stop = [](void*) -> int32_t { return 1; };
      };
      Job job(1, [&](int, Report& report) {
        report.times[0] = now_ns();
        Session session(open, rank);
      });
      ASSERT_TRUE(job.wait(10 * kSecond)) << transport << " rank " << rank;
      EXPECT_EQ(MERON_E_CANCELLED, job[0].status) << job[0].message;
      EXPECT_LT(job[0].failed_ns - job[0].times[0], kTolerance);
    }
  }
}

// After five seconds a warning names who has arrived and who has not; another one, that the wait
// has ended, and how long it took.
TEST(Waiting, NamesTheMissingRankInAWarning) {
  struct Log {
    Shared<Stop>* stop;
    std::atomic<int> warnings;
    char text[2][512];
  };
  Shared<Stop> stop(1);
  Shared<Log> log(1);
  log[0].stop = &stop;
  Open open;
  open.ranks = 3;
  open.token = fresh_token();
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank != 0) return;
    options.log_user = log.data();
    options.log = [](void* user, meron_log_level level, const char* message, size_t length) {
      auto* state = static_cast<Log*>(user);
      if (level != MERON_LOG_WARNING) return;
      if (state->warnings > 1) return;
      copy_text(state->text[state->warnings++], std::string(message, length));
      (*state->stop)[0].release(true);
    };
  };
  const int64_t begun = now_ns();
  Job job(3, [&](int rank, Report&) {
    Session session(open, rank);
    session.build();
    session.barrier();
    if (rank == 2) {
      stop[0].here(true);
    } else {
      stop[0].wait();
    }
    session.barrier();
    session.close();
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  EXPECT_GE(now_ns() - begun, 5 * kSecond);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
  EXPECT_EQ(2, log[0].warnings.load());
  const std::string text = log[0].text[0], end = log[0].text[1];
  EXPECT_NE(std::string::npos, text.find("barrier")) << text;
  EXPECT_NE(std::string::npos, text.find("waits in the barrier, for 5.")) << text;
  EXPECT_NE(std::string::npos, text.find("ranks 0, 1 arrived")) << text;
  EXPECT_NE(std::string::npos, text.find("missing: rank 2")) << text;
  EXPECT_NE(std::string::npos, text.find("rank 2 made call")) << text;
  EXPECT_EQ(0u, end.find("rank 0 waited 5.")) << end;
  EXPECT_NE(std::string::npos, end.find(" s in the barrier for rank 2: it goes on")) << end;
}

}  // namespace
}  // namespace meron::test
