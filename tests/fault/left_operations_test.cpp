// SPDX-License-Identifier: Apache-2.0
// Futures are released before anyone has seen how they end, and memory runs out as the context
// keeps or forgets their operations. A release succeeds all the same, and the list stays whole.
#include <atomic>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "tests/fault/failing_allocator.h"
#include "tests/fault/job.h"
#include "tests/unit/os/child_process.h"

namespace meron::test {
namespace {

constexpr int kGood = 0, kBad = 1, kAlarmSeconds = 60;
constexpr size_t kFailures = 2;  // steps that fail
constexpr int kAhead = 1100;     // calls; a rank may be 1,024 ahead

// Results of one run, in memory that the child shares with the test.
struct Seen {
  int64_t in_releases;  // allocations
  int64_t in_all;
  size_t lines;  // of the log, at level error
  char failed[256];
};

class Log {
 public:
  void attach(meron_context_options& options) {
    options.log_user = this;
    options.log = [](void* user, meron_log_level level, const char*, size_t) {
      if (level == MERON_LOG_ERROR) static_cast<Log*>(user)->lines_.fetch_add(1);
    };
  }
  size_t lines() const { return lines_.load(); }

 private:
  std::atomic<size_t> lines_{0};
};

struct Case {
  int64_t number;  // of the allocation that fails; 0: none
  bool busy;       // another thread is in the middle of a call
};

struct Futures {
  meron_future steps[kFailures];
  meron_future barrier;  // of rank 0 alone until the others follow
};

void build(Session& session, meron_optimizer (&optimizers)[kFailures]) {
  const meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
  for (size_t u = 0; u < kFailures; ++u) {
    const std::string name = "u" + std::to_string(u);
    const meron_param weight = session.register_param(name + ".weight", {37, 13});
    const meron_param bias = session.register_param(name + ".bias", {5});
    session.make_unit(name, {weight, bias});
    MUST(meron_optimizer_create, &optimizers[u], &session.units[u], 1, &options);
  }
}

// Steps of gradients that are infinite on rank 1.
void begin_steps(Session& session, meron_future (&steps)[kFailures]) {
  meron_optimizer optimizers[kFailures] = {};
  build(session, optimizers);
  for (size_t u = 0; u < kFailures; ++u) {
    session.reduce(u, session.rank == 1 ? std::numeric_limits<float>::infinity() : 1.0f);
    MUST(meron_optimizer_step_begin, &steps[u], optimizers[u]);
  }
}

// The second rank: its steps fail, and its barrier follows when `go` is set.
void follow(Session& session, bool busy, const std::atomic<bool>& go) {
  meron_future steps[kFailures] = {};
  begin_steps(session, steps);
  for (const meron_future step : steps) {
    (void)meron_future_wait(step, MERON_TIMEOUT_DEFAULT, nullptr);
    MUST(meron_future_release, step);
  }
  while (!go.load()) sleep_ns(kMilli);
  session.barrier();
  for (int i = 0; busy && i < kAhead; ++i) session.barrier();
  session.barrier();
  session.close();
}

// Ends both steps without a call that returns their errors: nothing is left until a release.
void end_steps(const Futures& futures) {
  for (const meron_future step : futures.steps) {
    while (meron_future_poll(step, nullptr) >= 0) sleep_ns(kMilli);
  }
}

// Another thread of the leading rank, in a begin that waits for the second one: it is further ahead
// than the ranks may be. Releases are queued meanwhile.
class Busy {
 public:
  explicit Busy(Session& session)
      : thread_([&session] {
          spared = true;
          std::vector<meron_future> barriers(kAhead);
          for (meron_future& each : barriers) MUST(meron_barrier_begin, &each, session.world);
          for (const meron_future each : barriers) session.wait(each);
        }) {
    sleep_ns(300 * kMilli);
  }
  ~Busy() { thread_.join(); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::thread thread_;
};

// Allocation `number` fails, of the releases and of the calls that look at what was left.
int lead(Session& session, const Case& each, std::atomic<bool>& go, const Log& log, Seen& seen) {
  Futures futures{};
  begin_steps(session, futures.steps);
  MUST(meron_barrier_begin, &futures.barrier, session.world);
  end_steps(futures);
  std::optional<Busy> busy;
  if (each.busy) busy.emplace(session);

  counted.store(0);
  fails_at.store(each.number);
  armed.store(true);
  // One that has not ended stands between two that have.
  const meron_status first = meron_future_release(futures.steps[0], nullptr);
  const meron_status second = meron_future_release(futures.barrier, nullptr);
  const meron_status third = meron_future_release(futures.steps[1], nullptr);
  seen.in_releases = counted.load();
  const meron_status looked =
      each.busy ? MERON_OK : meron_context_progress(session.context, nullptr);
  armed.store(false);
  seen.in_all = counted.load();
  fails_at.store(0);

  go.store(true);
  busy.reset();
  session.barrier();
  session.close();
  seen.lines = log.lines();
  const bool released = first == MERON_OK && second == MERON_OK && third == MERON_OK;
  const bool good = released && (looked >= 0 || looked == MERON_E_NO_MEMORY);
  if (!good) {
    std::snprintf(seen.failed, sizeof seen.failed, "releases %d, %d, %d; progress %d", first,
                  second, third, looked);
  }
  return good ? kGood : kBad;
}

int run(const Case& each, Seen& seen) {
  alarm(kAlarmSeconds);
  Log log;
  Open open;
  open.transport = "local";
  open.token = fresh_token();
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank == 0) log.attach(options);
  };
  std::atomic<bool> go{false};
  int ended = kBad;
  const auto rank = [&](int number_of) {
    try {
      Session session(open, number_of);
      if (number_of == 0) {
        ended = lead(session, each, go, log, seen);
      } else {
        follow(session, each.busy, go);
      }
    } catch (const CallFailed& failed) {
      armed.store(false);
      go.store(true);
      if (number_of == 0) copy_text(seen.failed, failed.function + ": " + failed.message);
    }
  };
  std::thread second(rank, 1);
  rank(0);
  second.join();
  return ended;
}

TEST(LeftOperations, AreKeptOrLoggedWhicheverAllocationFails) {
  Shared<Seen> shared(1);
  Seen& seen = shared[0];
  ASSERT_EQ(kGood, run_in_child([&] { return run({0, false}, seen); })) << seen.failed;
  ASSERT_EQ(kFailures, seen.lines);
  ASSERT_LT(seen.in_releases, seen.in_all);
  const int64_t all = seen.in_all, in_releases = seen.in_releases;
  for (int64_t number = 1; number <= all; ++number) {
    seen = {};
    const int ended = run_in_child([&] { return run({number, false}, seen); });
    SCOPED_TRACE(number);
    ASSERT_EQ(kGood, ended) << seen.failed << (ended >= 1000 ? "a signal ended the process" : "");
    // A release without memory may lose one line. Every other failure is logged once.
    EXPECT_LE(seen.lines, kFailures);
    EXPECT_GE(seen.lines, number <= in_releases ? kFailures - 1 : kFailures);
  }
}

// The thread that has the turn runs them later. Until then they take no memory.
TEST(LeftOperations, AreQueuedWithoutAnAllocation) {
  Shared<Seen> shared(1);
  Seen& seen = shared[0];
  ASSERT_EQ(kGood, run_in_child([&] { return run({1, true}, seen); })) << seen.failed;
  EXPECT_EQ(0, seen.in_releases);
  EXPECT_EQ(kFailures, seen.lines);
}

}  // namespace
}  // namespace meron::test
