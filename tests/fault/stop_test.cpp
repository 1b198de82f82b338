// SPDX-License-Identifier: Apache-2.0
// A rank stops without dying. The others wait for it no longer than their deadline, and say for
// whom and since when; where it comes back in time, nothing has happened.
#include "tests/fault/job.h"

namespace meron::test {
namespace {

constexpr int64_t kDeadline = 300 * kMilli;
constexpr int64_t kTolerance = kSecond;

// A place where rank 1 stops until rank 0 lets it go on: as a process by SIGSTOP, as a thread by
// waiting.
struct Stop {
  std::atomic<int> stopped;
  std::atomic<int> go;
  std::atomic<int> gone;
  std::atomic<pid_t> pid;

  void here(bool process) {
    pid = getpid();
    stopped = 1;
    if (process) raise(SIGSTOP);
    while (!process && go.load() == 0) sleep_ns(kMilli);
    gone = 1;
  }
  void wait() const {
    while (stopped.load() == 0) sleep_ns(kMilli / 10);
  }
  void release(bool process) {
    go = 1;
    // It may have announced its stop and not have stopped yet: it is sent on until it goes.
    while (process && gone.load() == 0) {
      kill(pid, SIGCONT);
      sleep_ns(kMilli);
    }
  }
};

// What a case keeps between its parts, per rank.
struct Held {
  meron_update update{};
  meron_future future{};
  int64_t begun = 0;  // just before the call whose deadline counts
};

struct Case {
  const char* name;
  const char* plan;
  const char* operation;  // as messages call it
  std::function<void(Session&, Held&)> both;
  std::function<void(Session&, Held&)> stopping;  // rank 1, just before it stops
  std::function<void(Session&, Held&)> waiting;   // rank 0
};

void nothing(Session&, Held&) {}
void begin_now(Held& held) {
  held.begun = now_ns();
}

const std::vector<Case>& cases() {
  static const char* const one_bucket = R"({"preset": "zero2", "gradient_buckets": 1})";
  const auto contribute = [](Session& session, Held& held) {
    held.future = session.reduce_begin(0, 1.0f);
  };
  // Rank 1 has contributed and may still read what rank 0 did, which must not change.
  const auto use_gradient = [](Session& session) {
    session.reduce(0, 1.0f);
    MUST(meron_reduce_discard, session.units[0]);
  };
  static const std::vector<Case> all = {
      {"gather_wait", "zero3", "gather of unit 'u0'",
       [](Session& session, Held& held) {
         MUST(meron_update_begin, &held.update, &session.units[0], 1);
         MUST(meron_update_wait, held.update, MERON_TIMEOUT_DEFAULT);
       },
       nothing,
       [](Session& session, Held& held) {
         MUST(meron_update_publish, held.update);
         begin_now(held);
         session.gather(0);
       }},
      {"update_wait", "zero1", "update of unit 'u0'", nothing, nothing,
       [](Session& session, Held& held) {
         begin_now(held);
         session.update(0, 1.0f);
       }},
      {"future_wait_reduce", "zero2", "reduce of unit 'u1'", nothing, nothing,
       [](Session& session, Held& held) {
         begin_now(held);
         session.reduce(1, 1.0f);
       }},
      {"future_wait_step", "zero0", "optimizer step",
       [](Session& session, Held&) {
         session.reduce(0, 1.0f);
         session.reduce(1, 1.0f);
       },
       nothing,
       [](Session& session, Held& held) {
         begin_now(held);
         session.step();
       }},
      {"future_wait_barrier", "zero3", "barrier", nothing, nothing,
       [](Session& session, Held& held) {
         begin_now(held);
         session.barrier();
       }},
      {"future_wait_broadcast_from_the_stopped", "zero3", "broadcast", nothing, nothing,
       [](Session& session, Held& held) {
         begin_now(held);
         session.broadcast(200'000, 1);
       }},
      {"future_wait_broadcast_to_the_stopped", "zero3", "broadcast", nothing, nothing,
       [](Session& session, Held& held) {
         begin_now(held);
         session.broadcast(200'000, 0);
       }},
      {"future_wait_all_reduce", "zero3", "all_reduce", nothing, nothing,
       [](Session& session, Held& held) {
         begin_now(held);
         session.all_reduce(100'000);
       }},
      {"gradient_view", one_bucket, "gradient bucket of unit 'u1'", nothing, contribute,
       [=](Session& session, Held& held) {
         use_gradient(session);
         begin_now(held);
         meron_view view{};
         MUST(meron_gradient_view, &view, session.params[2], 0);
       }},
      {"reduce_begin_of_the_caller's_arrays", one_bucket, "gradient bucket of unit 'u1'", nothing,
       contribute,
       [=](Session& session, Held& held) {
         use_gradient(session);
         const float bias[5] = {};
         const meron_source source = {session.params[3], bias, 5, MERON_F32, 0};
         begin_now(held);
         meron_future future{};
         MUST(meron_reduce_begin, &future, session.units[1], &source, 1, nullptr);
       }},
      {"gather_begin_a_ring_ahead", "zero3", "", nothing, nothing,
       [](Session& session, Held& held) {
         for (int i = 0; i < 1100; ++i) {
           begin_now(held);
           meron_gather gather{};
           MUST(meron_gather_begin, &gather, &session.units[0], 1, nullptr);
           MUST(meron_gather_release, gather);
         }
       }},
  };
  return all;
}

class Waits : public testing::TestWithParam<std::tuple<size_t, const char*>> {};

TEST_P(Waits, EndAtTheDeadline) {
  const Case& test = cases()[std::get<0>(GetParam())];
  Open open;
  open.transport = std::get<1>(GetParam());
  open.plan = test.plan;
  open.token = fresh_token();
  open.timeout_ns = kDeadline;
  const bool process = std::strcmp(open.transport, "shm") == 0;
  Shared<Stop> stop(1);
  Job job(
      2,
      [&](int rank, Report& report) {
        Held held;
        Session session(open, rank);
        session.build();
        test.both(session, held);
        session.barrier();
        try {
          if (rank == 1) {
            test.stopping(session, held);
            stop[0].here(process);
            session.barrier();
          } else {
            stop[0].wait();
            test.waiting(session, held);
          }
        } catch (const CallFailed& failed) {
          report.times[0] = failed.when_ns - held.begun;
          report.times[1] = now_ns();
          if (rank == 0) stop[0].release(process);
          session.close();
          throw;
        }
      },
      !process);
  const bool ended = job.wait(10 * kSecond);
  for (int rank = 0; rank < 2; ++rank) {
    const Report& report = job[rank];
    const std::string message = report.message;
    SCOPED_TRACE("rank " + std::to_string(rank) + ": " + report.function + ": " + message);
    EXPECT_EQ(MERON_E_TIMEOUT, report.status) << meron_status_name(report.status);
    EXPECT_EQ(rank, report.rank);
    EXPECT_EQ(1, report.peer);
    EXPECT_NE(std::string::npos, message.find("rank 1")) << "names not who is missing";
    EXPECT_NE(std::string::npos, message.find(test.operation));
    if (*test.operation != '\0') {
      EXPECT_NE(std::string::npos, message.find("rank 1 made call")) << "not what it did last";
    }
  }
  EXPECT_GE(job[0].times[0], kDeadline);
  EXPECT_LT(job[0].times[0], kDeadline + kTolerance);
  ASSERT_TRUE(ended) << "a rank hangs";
}

INSTANTIATE_TEST_SUITE_P(Calls, Waits,
                         testing::Combine(testing::Range<size_t>(0, cases().size()),
                                          testing::Values("shm", "local")),
                         [](const auto& info) {
                           std::string name = cases()[std::get<0>(info.param)].name;
                           name += std::string("_") + std::get<1>(info.param);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '\''; }, '_');
                           return name;
                         });

// Opening waits for ranks that were never started: with the host of the meeting missing, with a
// guest missing.
TEST(Opening, EndsAtTheDeadline) {
  for (const char* transport : {"shm", "local"}) {
    for (const int absent : {0, 1, 2}) {
      Open open;
      open.transport = transport;
      open.ranks = 3;
      open.token = fresh_token();
      open.timeout_ns = kDeadline;
      Job job(
          3,
          [&](int rank, Report& report) {
            if (rank == absent) return;
            report.times[0] = now_ns();
            Session session(open, rank);
          },
          std::strcmp(transport, "local") == 0);
      ASSERT_TRUE(job.wait(10 * kSecond));
      for (int rank = 0; rank < 3; ++rank) {
        const Report& report = job[rank];
        if (rank == absent) continue;
        SCOPED_TRACE(std::string(transport) + ": " + report.message);
        EXPECT_EQ(MERON_E_TIMEOUT, report.status) << meron_status_name(report.status);
        EXPECT_EQ(absent, report.peer);
        // All learn it when the first deadline passes: ranks do not start at the same moment.
        EXPECT_GE(report.failed_ns - report.times[0], kDeadline - 100 * kMilli);
        EXPECT_LT(report.failed_ns - report.times[0], kDeadline + kTolerance);
      }
    }
  }
}

void train(Session& session, int steps) {
  for (int step = 0; step < steps; ++step) {
    session.gather(1);
    for (size_t unit = 2; unit-- > 0;) {
      session.reduce(unit, 0.01f * static_cast<float>((session.rank + 1) * (step % 7 + 1)));
    }
    session.step();
    session.barrier();
    sleep_ns(kMilli);
  }
}

// Sums of all units' values, which steps have changed, into report.times (as bits).
void note_values(Session& session, Report& report) {
  for (size_t unit = 0; unit < 2; ++unit) {
    const double sum = session.gather(unit);
    std::memcpy(&report.times[unit], &sum, sizeof(sum));
  }
}

TEST(Stopped, ForAWhileChangesNothing) {
  Random random(test_seed());
  constexpr int kSteps = 150;
  int64_t expected[2] = {};
  for (const bool disturb : {false, true}) {
    Open open;
    open.ranks = 3;
    open.plan = "zero3";
    open.token = fresh_token();
    Job job(3, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      report.mark = 1;
      train(session, kSteps);
      note_values(session, report);
      session.close();
    });
    ASSERT_TRUE(job.reached(1));
    for (int stops = disturb ? 8 : 0; stops > 0; --stops) {
      const int victim = random.below(3);
      job.signal(victim, SIGSTOP);
      sleep_ns((20 + random.below(100)) * kMilli);
      job.signal(victim, SIGCONT);
      sleep_ns(random.below(15) * kMilli);
    }
    ASSERT_TRUE(job.wait(60 * kSecond));
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(MERON_OK, job[rank].status) << job[rank].message;
      for (int unit = 0; unit < 2; ++unit) {
        if (!disturb && rank == 0) expected[unit] = job[rank].times[unit];
        EXPECT_EQ(expected[unit], job[rank].times[unit]) << "rank " << rank << " unit " << unit;
      }
    }
  }
}

TEST(Stopped, AtARandomTimeIsNamed) {
  Random random(test_seed() + 1);
  Times named;
  for (int trial = 0; trial < 16; ++trial) {
    Open open;
    open.ranks = 2 + random.below(3);
    open.plan = "zero" + std::to_string(random.below(4));
    open.token = fresh_token();
    open.timeout_ns = kDeadline;
    const int victim = random.below(open.ranks);
    SCOPED_TRACE("trial " + std::to_string(trial) + ": " + open.plan + ", rank " +
                 std::to_string(victim) + " of " + std::to_string(open.ranks));
    Job job(open.ranks, [&](int rank, Report& report) {
      Session session(open, rank);
      try {
        session.build();
        report.mark = 1;
        train(session, 1'000'000);
      } catch (const CallFailed&) {
        session.close();
        throw;
      }
    });
    ASSERT_TRUE(job.reached(1));
    sleep_ns(random.below(20) * kMilli);
    const int64_t stopped = now_ns();
    job.signal(victim, SIGSTOP);
    for (int rank = 0; rank < open.ranks; ++rank) {
      while (rank != victim && __atomic_load_n(&job[rank].ended, __ATOMIC_ACQUIRE) == 0 &&
             now_ns() < stopped + 10 * kSecond) {
        sleep_ns(kMilli);
      }
    }
    job.signal(victim, SIGCONT);
    ASSERT_TRUE(job.wait(10 * kSecond)) << "a rank hangs";
    const std::string name = "rank " + std::to_string(victim);
    for (int rank = 0; rank < open.ranks; ++rank) {
      const Report& report = job[rank];
      SCOPED_TRACE("rank " + std::to_string(rank) + ": " + report.message);
      EXPECT_EQ(MERON_E_TIMEOUT, report.status) << meron_status_name(report.status);
      EXPECT_EQ(victim, report.peer);
      EXPECT_NE(nullptr, std::strstr(report.message, (name + " made call").c_str()));
      if (rank == victim) continue;
      // The first to notice may have begun its operation before the stop.
      EXPECT_GT(report.failed_ns - stopped, kDeadline - 100 * kMilli);
      EXPECT_LT(report.failed_ns - stopped, kDeadline + kTolerance);
      named.add(report.failed_ns - stopped);
    }
    ASSERT_FALSE(HasFailure());
  }
  named.print("named after (deadline 300 ms)");
}

// A wait that ends early leaves the operation under way.
TEST(Waiting, WithATimeoutGoesOnLater) {
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
      MUST(meron_all_reduce_begin, &future, session.world, &value, 1, MERON_F32, MERON_SUM);
    } else {
      stop[0].wait();
      MUST(meron_all_reduce_begin, &future, session.world, &value, 1, MERON_F32, MERON_SUM);
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

// should_stop ends any call that waits; what was begun goes on, and the call can be made again.
TEST(Waiting, EndsWhenShouldStopSays) {
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

TEST(Waiting, ForRanksToComeEndsWhenShouldStopSays) {
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
TEST(Waiting, WarnsWhoIsMissing) {
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
