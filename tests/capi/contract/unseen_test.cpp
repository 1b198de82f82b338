// SPDX-License-Identifier: Apache-2.0
// A future that failed and was released unseen: the log gets its error, once.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <thread>

#include "tests/fault/rank.h"

namespace meron::test {
namespace {

// Errors that a context logs.
class ErrorLog {
 public:
  void attach(meron_context_options& options) {
    options.log_user = this;
    options.log = [](void* user, meron_log_level level, const char* message, size_t length) {
      if (level != MERON_LOG_ERROR) return;
      auto& self = *static_cast<ErrorLog*>(user);
      const std::lock_guard lock(self.mutex_);
      self.lines_.emplace_back(message, length);
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

class Unseen : public testing::Test {
 protected:
  Unseen() {
    open.transport = "self";
    open.ranks = 1;
    open.adjust = [this](int, meron_context_options& options) { log.attach(options); };
  }

  // A step whose gradient has a NaN.
  meron_future failing_step(Session& session) {
    for (size_t unit = 0; unit < session.units.size(); ++unit) {
      session.reduce(unit, unit == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
    }
    meron_future step{};
    MUST(meron_optimizer_step_begin, &step, session.optimizer);
    return step;
  }
  void expect_one_line(const std::vector<std::string>& texts) {
    const std::vector<std::string> lines = log.lines();
    ASSERT_EQ(1u, lines.size());
    for (const std::string& text : texts) {
      EXPECT_NE(std::string::npos, lines[0].find(text)) << lines[0] << "\nlacks: " << text;
    }
  }

  ErrorLog log;
  Open open;
};

TEST_F(Unseen, AStepWithNaNIsLoggedByTheNextWait) {
  Session session(open, 0);
  session.build();
  MUST(meron_future_release, failing_step(session));
  session.barrier();
  expect_one_line({"step", "failed", "u0.", "nan"});
  session.barrier();
  session.close();
  EXPECT_EQ(1u, log.lines().size()) << "logged again";
}

TEST_F(Unseen, AStepWithNaNIsLoggedByTheClose) {
  Session session(open, 0);
  session.build();
  MUST(meron_future_release, failing_step(session));
  session.close();
  expect_one_line({"step", "failed"});
}

// The trainer does not release it. It fails as another call advances it.
TEST_F(Unseen, AFutureThatTheCloseReleasesIsLogged) {
  Session session(open, 0);
  session.build();
  (void)failing_step(session);
  MUST(meron_context_progress, session.context);
  session.close();
  expect_one_line({"step", "failed"});
}

TEST_F(Unseen, AnErrorThatAWaitReturnedIsNotLogged) {
  Session session(open, 0);
  session.build();
  const meron_future step = failing_step(session);
  EXPECT_EQ(MERON_E_NONFINITE, meron_future_wait(step, MERON_TIMEOUT_DEFAULT, nullptr));
  MUST(meron_future_release, step);
  session.barrier();
  session.close();
  EXPECT_TRUE(log.lines().empty()) << log.lines().front();
}

TEST_F(Unseen, AnErrorThatAPollReturnedIsNotLogged) {
  Session session(open, 0);
  session.build();
  const meron_future step = failing_step(session);
  const CallFailed failed = FAILURE_OF(meron_future_poll, step);
  EXPECT_EQ(MERON_E_NONFINITE, failed.status);
  MUST(meron_future_release, step);
  session.close();
  EXPECT_TRUE(log.lines().empty()) << log.lines().front();
}

// A poll without `err` is how bindings find out that memory is no longer used.
TEST_F(Unseen, APollWithoutAnErrorObjectDoesNotCount) {
  Session session(open, 0);
  session.build();
  const meron_future step = failing_step(session);
  EXPECT_EQ(MERON_E_NONFINITE, meron_future_poll(step, nullptr));
  MUST(meron_future_release, step);
  session.close();
  expect_one_line({"step", "failed"});
}

// Runs two ranks as threads; rank 0 logs.
void run_two(ErrorLog& log, const std::function<void(Session&)>& body) {
  Open open;
  open.transport = "local";
  open.token = fresh_token();
  open.timeout_ns = 20 * kSecond;
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank == 0) log.attach(options);
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        Session session(open, rank);
        body(session);
        (void)meron_context_close(session.context, nullptr);
      } catch (const CallFailed& failed) {
        ADD_FAILURE() << "rank " << rank << ": " << failed.message;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// It was released while it was pending, and failed later.
TEST_F(Unseen, AStepThatIsReleasedBeforeItFails) {
  run_two(log, [](Session& session) {
    session.build(1);
    session.reduce(0, session.rank == 1 ? std::numeric_limits<float>::infinity() : 1.0f);
    if (session.rank == 1) sleep_ns(200 * kMilli);
    meron_future step{};
    MUST(meron_optimizer_step_begin, &step, session.optimizer);
    MUST(meron_future_release, step);
    session.barrier();
    session.barrier();
  });
  expect_one_line({"step", "failed", "element 0"});
}

// One line, however many futures a broken group has.
TEST_F(Unseen, ABrokenGroupIsLoggedOnceByTheClose) {
  std::atomic<bool> begun{false};
  run_two(log, [&](Session& session) {
    session.barrier();
    for (int i = 0; i < 20 && session.rank == 0; ++i) {
      meron_future barrier{};
      MUST(meron_barrier_begin, &barrier, session.world);
      MUST(meron_future_release, barrier);
    }
    if (session.rank == 1) {
      while (!begun) sleep_ns(kMilli);
      MUST(meron_group_abort, session.world, "out of coffee");
      return;
    }
    begun = true;
    while (meron_group_status(session.world, nullptr) == MERON_OK) sleep_ns(kMilli);
    (void)FAILURE_OF(meron_context_progress, session.context);
  });
  expect_one_line({"barrier failed", "out of coffee"});
}

TEST_F(Unseen, ABrokenGroupThatAWaitReportedIsNotLogged) {
  std::atomic<bool> begun{false};
  run_two(log, [&](Session& session) {
    session.barrier();
    if (session.rank == 1) {
      while (!begun) sleep_ns(kMilli);
      MUST(meron_group_abort, session.world, "out of coffee");
      return;
    }
    meron_future first{}, second{};
    MUST(meron_barrier_begin, &first, session.world);
    MUST(meron_barrier_begin, &second, session.world);
    begun = true;
    EXPECT_EQ(MERON_E_ABORTED, meron_future_wait(first, MERON_TIMEOUT_DEFAULT, nullptr));
    MUST(meron_future_release, first);
    MUST(meron_future_release, second);
  });
  EXPECT_TRUE(log.lines().empty()) << log.lines().front();
}

}  // namespace
}  // namespace meron::test
