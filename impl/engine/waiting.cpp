// SPDX-License-Identifier: Apache-2.0
// Waiting: whoever waits advances what is pending. Peers that will never arrive:
// checking_peers.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/callback.h"
#include "engine/context.h"
#include "engine/event_thread.h"
#include "engine/save_operation.h"
#include "engine/save_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace meron {
namespace {

// Longer than the usual hand-over between ranks that run, shorter than a scheduler's patience.
constexpr int64_t kSpinNs = 50'000;
constexpr int kPausesPerLook = 4;
// Longest sleep of a rank before it checks its peers' processes and asks should_stop.
constexpr int64_t kSleepNs = 20 * kNanosPerMilli;
constexpr int64_t kStopCheckNs = 100 * kNanosPerMilli;

void relax() {
  for (int i = 0; i < kPausesPerLook; ++i) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}

class Waiting {
 public:
  explicit Waiting(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
  ~Waiting() { count_.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

void Context::progress(Held& held) {
  Unit::settle_waiting(*rank_);
  // Another thread of this rank may sleep for what has ended here.
  if (pending_.advance_all(held)) transport_->ring();
}

void Context::note_left() {
  std::erase_if(failures_.left, [this](const std::shared_ptr<Operation>& operation) {
    if (!operation->ended()) return false;
    if (!operation->error() || operation->delivered()) return true;
    try {
      failures_.unseen.add(operation->describe(), *operation->error());
    } catch (const std::bad_alloc&) {
      return false;  // noted at the next look; an exception would leave the list half moved
    }
    return true;
  });
}

std::vector<std::string> Context::take_unseen() {
  note_left();
  return failures_.unseen.take();
}

void Context::leave(const std::shared_ptr<Operation>& operation) {
  // The next save, or the close, reports the failure of a save.
  if (std::dynamic_pointer_cast<SaveOperation>(operation)) return;
  if (operation->ended() && !operation->error()) return;
  try {
    failures_.left.push_back(operation);
  } catch (const std::bad_alloc&) {
    // The release succeeds, and the log gets no line.
  }
}

Result<bool> Context::look(Held& held, Operation& operation) {
  const bool under_way = !operation.ended();
  pending_.advance(held, operation);
  if (under_way && operation.ended()) transport_->ring();
  if (operation.error()) return *operation.error();
  return operation.ended();
}

Status Context::progress() {
  transport_->pump();
  auto held = lock();
  MERON_TRY(check_open());
  progress(held);
  note_left();
  return Ok{};
}

Result<bool> Context::wait(const std::shared_ptr<Operation>& operation, int64_t timeout_ns) {
  expect_unheld("a wait");
  Operation& target = *operation;
  // A callback only looks: the operation that runs it must not be advanced by itself.
  if (timeout_ns == 0 && CallbackScope::here() != Callback::none) {
    auto held = lock();
    if (target.error()) return *target.error();
    if (!target.ended()) MERON_TRY(check_open());
    return target.ended();
  }
  transport_->pump();
  // For the log, which is called without the lock.
  std::vector<std::pair<LogLevel, std::string>> lines;
  int64_t now = 0;  // of the last look that found the operation under way
  const auto add_line = [&](std::string line) {
    if (!line.empty()) lines.emplace_back(LogLevel::warning, std::move(line));
  };
  const auto look_once = [&](bool last) -> Result<bool> {
    auto held = lock();
    // Operations that their users have left have no other wait that advances them.
    if (!target.ended() || !failures_.left.empty()) progress(held);
    for (; !rank_->notices.empty(); rank_->notices.erase(rank_->notices.begin())) {
      add_line(std::move(rank_->notices.front()));
    }
    if (some_unseen() && !target.error()) {  // which this call returns
      for (std::string& line : take_unseen()) lines.emplace_back(LogLevel::error, std::move(line));
    }
    if (!target.ended()) {
      now = now_ns();
      const bool due = target.inspection_due(now, kSleepNs) || last;
      if (due && !target.looked_after()) check_peers(held, target);
      if (!target.ended()) add_line(report_wait(held, target, now));
    }
    if (!target.ended()) {
      MERON_TRY(check_open());
      return false;
    }
    if (target.error()) {
      record_failure(*target.error());
      if (!target.channel().status().ok()) failures_.unseen.saw_broken_group();
      return *target.error();
    }
    if (target.was_waited_for()) add_line(report_end(held, target));
    return true;
  };

  const auto tell = [&] {
    if (lines.empty()) return;
    for (const auto& [level, line] : std::exchange(lines, {})) options_.log(level, line);
  };

  const auto look = [&](bool last) {
    Result<bool> ended = look_once(last);
    if (!ended.ok()) tell();
    return ended;
  };

  MERON_ASSIGN(bool ended, look(false));
  tell();
  if (ended || timeout_ns == 0) return ended;

  const Waiting waiting(waiters_.threads);
  const int64_t begun = now;
  const Deadline user = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  const Deadline deadline = target.deadline();
  // Short waits that follow each other count as one: see asks_to_stop().
  if (begun - next_stop_check_.load() > kStopCheckNs) next_stop_check_.store(begun + kStopCheckNs);
  while (true) {
    if (now - begun < kSpinNs && transport_->may_spin()) {
      relax();
      transport_->pump();
      MERON_ASSIGN(ended, look(false));
      if (ended) break;
      continue;
    }
    {
      Transport::Sleeper sleeper(*transport_);
      MERON_ASSIGN(ended, look(deadline.passed()));
      if (ended) break;
      // After the deadline it is looked at as often: ranks may be saving.
      const int64_t left = deadline.passed() ? kSleepNs : deadline.remaining();
      sleeper.sleep(std::min({kSleepNs, user.remaining(), left}));
    }
    if (asks_to_stop(now)) {
      return Error(MERON_E_CANCELLED, "should_stop asked the wait to end",
                   "the operation goes on: wait again, or abort the group")
          .during(target.describe());
    }
    if (user.passed()) {
      MERON_ASSIGN(ended, look(deadline.passed()));
      break;
    }
    tell();
  }
  tell();
  add(rank_->counters.wait_ns, static_cast<uint64_t>(now_ns() - begun));
  return ended;
}

bool Context::asks_to_stop(int64_t now) {
  if (!options_.should_stop || now < next_stop_check_.load()) return false;
  next_stop_check_.store(now + kStopCheckNs);
  return options_.should_stop();
}

void Context::note_delivered(Operation& operation, const Error& error) {
  auto held = lock();
  // A cancelled wait does not report an error that the operation got later.
  const auto& failure = operation.error();
  if (failure && failure->code() == error.code()) operation.set_delivered();
}

void Context::await_still(const Operation& operation) {
  while (true) {
    {
      auto held = lock();
      if (!operation.running() || PendingOperations::within_operation()) return;
    }
    Transport::Sleeper sleeper(*transport_);
    sleeper.sleep(kSpinNs);
  }
}

namespace {

// Waits for queued copies to the device. Not a collective.
class DeviceCopiesOperation final : public Operation {
 public:
  DeviceCopiesOperation(std::shared_ptr<GatherOperation> gather, Deadline deadline)
      : Operation(gather->channel(), deadline), gather_(std::move(gather)) {}
  Result<bool> advance() override { return gather_->settled(); }
  std::vector<int> missing() const override {
    return gather_->by_devices() ? channel_.not_begun(gather_->sequence()) : std::vector<int>{};
  }
  std::string describe() const override {
    return "copy to the device of the " + gather_->describe();
  }

 private:
  std::shared_ptr<GatherOperation> gather_;
};

}  // namespace

Result<bool> Context::wait_whole(const std::shared_ptr<GatherOperation>& gather,
                                 int64_t timeout_ns) {
  const Deadline user = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  MERON_ASSIGN(const bool ended, wait(gather, timeout_ns));
  if (!ended || !gather->on_device()) return ended;
  if (timeout_ns == 0 && CallbackScope::here() != Callback::none) {
    auto held = lock();
    return gather->settled();
  }
  std::shared_ptr<Operation> copies;
  {
    auto held = lock();
    MERON_TRY(check_open());
    copies = std::make_shared<DeviceCopiesOperation>(gather, rank_->deadline());
    submit(held, copies);
  }
  return wait(copies, timeout_ns <= 0 ? timeout_ns : user.remaining());
}

// ---- Several operations, and event loops
// ----------------------------------------------------------

Result<bool> Context::look_until(const std::function<Result<bool>()>& look, int64_t timeout_ns) {
  expect_unheld("a wait");
  const Deadline user = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  while (true) {
    {
      // A ring after this look ends the sleep.
      Transport::Sleeper sleeper(*transport_);
      MERON_ASSIGN(const bool found, look());
      if (found) return true;
      if (user.passed()) return false;
      if (!closing_.begun.load()) sleeper.sleep(std::min(kSleepNs, user.remaining()));
    }
    transport_->pump();
    if (asks_to_stop(now_ns())) {
      return Error(MERON_E_CANCELLED, "should_stop asked the wait to end",
                   "the operations go on: wait again, or abort the group");
    }
  }
}

Result<int> Context::event_descriptor() {
  auto held = lock();
  MERON_TRY(check_open());
  if (closing_.begun.load()) {
    return Error(MERON_E_CLOSED, "the context is being closed", "open another one");
  }
  if (!events_) {
    MERON_ASSIGN(events_, EventThread::start(*this));
    events_->begun();  // of what is under way already
  }
  return events_->descriptor();
}

void Context::clear_event() {
  auto held = lock();
  if (events_) events_->clear();
}

bool Context::some_under_way() {
  const Lock held(*this, Lock::Quietly{});
  const auto& all = pending_.all();
  return std::any_of(all.begin(), all.end(), [](const auto& each) { return !each->ended(); }) ||
         (threads_.saves && threads_.saves->under_way());
}

}  // namespace meron
