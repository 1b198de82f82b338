// SPDX-License-Identifier: Apache-2.0
// A rank stops without dying. The others wait for it until their deadline, and their error names
// the rank and the time since it stopped. If it continues in time, there is no error.
#include "tests/fault/stop.h"

namespace meron::test {
namespace {

constexpr int64_t kDeadline = 300 * kMilli;
constexpr int64_t kTolerance = kSecond;

// State of a case between its parts, per rank.
struct Held {
  meron_future update{};
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
         MUST(meron_future_wait, held.update, MERON_TIMEOUT_DEFAULT);
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
           meron_future gather{};
           MUST(meron_gather_begin, &gather, &session.units[0], 1, nullptr);
           MUST(meron_future_release, gather);
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

// Opening waits for ranks that were never started: with rank 0 missing, with
// another rank missing.
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

}  // namespace
}  // namespace meron::test
