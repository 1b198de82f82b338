// SPDX-License-Identifier: Apache-2.0
// The turn, what finalizers leave, and closing. Contexts are opened in opening.cpp, groups made in
// groups.cpp, calls posted in posting.cpp, operations begun in operations.cpp, and waited for in
// waiting.cpp.
#include "engine/context.h"

#include <chrono>
#include <thread>

#include "base/callback.h"
#include "base/handles.h"
#include "engine/device_watch.h"
#include "engine/event_thread.h"
#include "engine/progress_thread.h"
#include "engine/save_thread.h"
#include "kernels/highway/chosen_target.h"

namespace meron {
namespace {

// Longest sleep of a thread that waits for its turn, before it asks should_stop.
constexpr int64_t kTurnSleepNs = 100 * kNanosPerMilli;
// Period at which resting calls ask should_stop.
constexpr int64_t kRestStopCheckNs = 20 * kNanosPerMilli;
constexpr int64_t kCloseSleepNs = kNanosPerMilli / 5;

Error closed_error() {
  return Error(MERON_E_CLOSED, "the context was closed", "open another one");
}

}  // namespace

// The trainer's functions are called without the lock: builds with checks see to it. None is called
// once the context is closed.
Context::Context(OpenOptions options) : options_(std::move(options)) {
  if (options_.log) {
    options_.log = [this, log = std::move(options_.log)](LogLevel level, const std::string& text) {
      expect_unheld("a call of the log");
      if (const CallbackCount::Entry entry(closing_.callbacks); entry) log(level, text);
    };
  }
  if (options_.should_stop) {
    options_.should_stop = [this, stop = std::move(options_.should_stop)] {
      expect_unheld("a call of should_stop");
      const CallbackCount::Entry entry(closing_.callbacks);
      return entry && stop();
    };
  }
}

Result<std::shared_ptr<Context>> Context::open(OpenOptions options) {
  if (std::string problem = kernels::target_problem(); !problem.empty()) {
    return Error(MERON_E_ARGUMENT, std::move(problem),
                 "unset it, or name one of " + kernels::target_names());
  }
  std::shared_ptr<Context> context(new Context(std::move(options)));
  MERON_TRY(context->start());
  return context;
}

Status Context::rest(Held& /*held*/, int64_t sleep_ns) {
  bool stopped = false;
  {
    const Recess recess;
    if (const int64_t now = now_ns(); options_.should_stop && now >= next_stop_check_.load()) {
      next_stop_check_.store(now + kRestStopCheckNs);
      stopped = options_.should_stop();
    }
    if (!stopped && !closing_.begun.load()) {
      Transport::Sleeper sleeper(*transport_);
      sleeper.sleep(sleep_ns);
    }
    transport_->pump();
  }
  if (closing_.begun.load()) return closed_error();
  if (!stopped) return Ok{};
  return Error(MERON_E_CANCELLED, "should_stop asked the rank to stop waiting for the others",
               "call again when the ranks are to meet");
}

Result<Turn> Context::wait_for_turn() {
  if (gate_.mine()) {
    return Error(MERON_E_STATE,
                 "a function that the engine called while it began something begins another",
                 "let allocator, log and should_stop only look, and begin it after they return");
  }
  while (!gate_.take(kTurnSleepNs)) {
    if (closing_.begun.load()) return closed_error();
    if (options_.should_stop && options_.should_stop()) {
      return Error(MERON_E_CANCELLED, "should_stop asked the wait for another thread's call to end",
                   "call again; nothing was begun");
    }
  }
  Turn turn(gate_);
  if (releases_in_turn_.some()) take_back_in_turn(turn);
  return turn;
}

void Context::take_back_in_turn(const Turn& /*turn*/) {
  auto held = lock();
  release_due_in_turn(held);
}

// In the calling thread's turn.
void Context::release_due_in_turn(const Held& /*held*/) {
  for (Release& release : releases_in_turn_.take()) release();
}

void Context::take_back(Held& /*held*/) {
  for (Release& release : releases_.take()) release();
}

Context::~Context() {
  threads_.saves.reset();
  // Taking the lock runs queued releases and returns memory that is due to the trainer.
  if (rank_) auto held = lock();
  if (transport_ && !closed()) transport_->leave();
}

// Logs notices and failures that no waiting call has logged.
void Context::tell_notices() {
  std::vector<std::string> notices, failures;
  {
    auto held = lock();
    if (rank_) notices.swap(rank_->notices);
    // Ends operations that need no wait: a step with NaN, for example.
    if (!failures_.left.empty() && CallbackScope::here() == Callback::none) progress(held);
    failures = take_unseen();
    if (std::string broken = failures_.unseen.take_broken(); !broken.empty()) {
      failures.push_back(std::move(broken));
    }
  }
  if (!options_.log) return;
  for (const std::string& failure : failures) options_.log(LogLevel::error, failure);
  for (const std::string& notice : notices) options_.log(LogLevel::warning, notice);
}

void Context::close() {
  expect_unheld("closing a context");
  end_saves();
  tell_notices();
  closing_.begun.store(true);
  std::unique_ptr<SaveThread> saves;
  std::unique_ptr<ProgressThread> progress;
  std::unique_ptr<DeviceWatch> watch;
  std::unique_ptr<EventThread> events;  // ended at the return: a loop then finds the context closed
  {
    auto held = lock();
    events = std::move(events_);
    progress = std::move(threads_.progress);
    watch = std::move(threads_.devices);
    saves = std::move(threads_.saves);
  }
  saves.reset();
  progress.reset();
  watch.reset();
  // Running operations access memory, the caller's too. Their waits have been asked to end. If one
  // of the trainer's functions closes the context, this does not wait for the call that runs it.
  const bool within = gate_.mine();
  const auto quiet = [&](const Held& held) {
    return pending_.others_rest(held) && (within || gate_.take_if_free());
  };
  while (true) {
    {
      auto held = lock();
      if (closed()) return;
      if (quiet(held)) {
        closing_.done.store(true, std::memory_order_release);
        pending_.end_all(held, Error(MERON_E_CLOSED, "the context was closed",
                                     "wait for operations before the context is closed"));
        failures_.left.clear();
        break;
      }
    }
    Transport::Sleeper sleeper(*transport_);
    sleeper.sleep(kCloseSleepNs);
  }
  if (!within) gate_.give_back();
  // Nothing reads or writes the caller's memory from here on.
  if (rank_ && rank_->device) {
    auto held = lock();
    end_devices(held);
  }
  // Wakes threads of this rank that wait, too.
  transport_->leave();
  HandleTable::instance().erase_all(this);
  closing_.callbacks.end();
  // A callback that closes its own context cannot be waited for, nor can two that close each
  // other's.
  if (CallbackScope::here() != Callback::none) return;
  while (!closing_.callbacks.rest())
    std::this_thread::sleep_for(std::chrono::nanoseconds(kCloseSleepNs));
}

Status Context::check_open() const {
  if (!closed()) return Ok{};
  return closed_error();
}

}  // namespace meron
