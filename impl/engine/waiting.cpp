// SPDX-License-Identifier: Apache-2.0
// Waiting: how operations go on, and how whoever waits learns that a peer never comes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/context.h"
#include "engine/save_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace meron {
namespace {

// Longer than the usual hand-over between ranks that run, shorter than a scheduler's patience.
constexpr int64_t kSpinNs = 50'000;
constexpr int kPausesPerLook = 4;
// How long a sleeping rank goes without a look at its peers' processes, and at should_stop.
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

thread_local int Context::running_here = 0;

// Where memory runs out the operation ends; the counts of those that run must be right afterwards.
static Result<bool> advance_safely(Operation& operation) {
  try {
    return operation.advance();
  } catch (const std::bad_alloc&) {
    return Error(MERON_E_NO_MEMORY, "the process has no memory left for the operation",
                 "free memory, or use smaller units")
        .during(operation.describe());
  }
}

void Context::advance_locked(Held& /*held*/, Operation& operation) {
  // Another thread may be in the middle of what takes long.
  if (operation.ended() || operation.running()) return;
  // Where ranks share no memory, words of a peer may come before the record of the call that they
  // belong to was compared.
  if (operation.channel().link() != nullptr && operation.sequence() != 0 &&
      !operation.begins_alone()) {
    auto agreed = operation.channel().agreed(operation.sequence());
    if (!agreed.ok()) return operation.finish(std::move(agreed).error());
    if (!*agreed) return;
  }
  operation.set_running(true);
  ++running_, ++running_here;
  Result<bool> ended = advance_safely(operation);
  --running_, --running_here;
  operation.set_running(false);
  if (!ended.ok()) {
    operation.finish(std::move(ended).error());
  } else if (*ended) {
    operation.finish();
  }
}

void Context::submit_locked(Held& held, const std::shared_ptr<Operation>& operation) {
  // A staged operation must not overtake one that waits.
  const bool queue =
      operation->staged() && std::any_of(pending_.begin(), pending_.end(), [&](const auto& other) {
        return other->staged() && !other->ended() && &other->channel() == &operation->channel();
      });
  // It is added before it advances, which may release the lock: no later one may overtake it.
  if (queue) {
    pending_.push_back(operation);
    return;
  }
  // Until it has advanced the caller's reference keeps it: most end here, and are never shared.
  const size_t place = pending_.size();
  pending_.emplace_back(std::shared_ptr<void>(), operation.get());
  ++passes_;  // so that no pass of another thread moves the places
  advance_locked(held, *operation);
  --passes_;
  if (!operation->ended() || place + 1 < pending_.size() || passes_ > 0) {
    pending_[place] = operation;
  } else {
    pending_.pop_back();
  }
}

void Context::progress_locked(Held& held) {
  Unit::settle_waiting(*rank_);
  if (pending_.empty()) return;
  std::vector<const Channel*> staged_heads;
  bool some_ended = false;
  ++passes_;
  // While one computes others may be added, and other threads may pass.
  for (size_t i = 0; i < pending_.size(); ++i) {
    Operation& operation = *pending_[i];
    if (operation.ended()) continue;
    const Channel* channel = &operation.channel();
    const bool blocked = operation.staged() && std::find(staged_heads.begin(), staged_heads.end(),
                                                         channel) != staged_heads.end();
    if (!blocked) advance_locked(held, operation);
    if (!operation.ended() && !operation.running()) {
      if (const Status status = channel->status(); !status.ok()) operation.finish(status.error());
    }
    some_ended = some_ended || operation.ended();
    if (!operation.ended() && operation.staged() && !blocked) staged_heads.push_back(channel);
  }
  if (--passes_ == 0) {
    std::erase_if(pending_, [](const auto& operation) { return operation->ended(); });
  }
  // Another thread of this rank may sleep for what has ended here.
  if (some_ended) transport_->ring();
}

Result<bool> Context::look_locked(Held& held, Operation& operation) {
  const bool under_way = !operation.ended();
  advance_locked(held, operation);
  if (under_way && operation.ended()) transport_->ring();
  if (operation.error()) return *operation.error();
  return operation.ended();
}

Status Context::progress() {
  transport_->pump();
  auto held = lock();
  MERON_TRY(check_open());
  progress_locked(held);
  return Ok{};
}

Result<bool> Context::wait(const std::shared_ptr<Operation>& operation, int64_t timeout_ns) {
  expect_unheld("a wait");
  Operation& target = *operation;
  transport_->pump();
  std::vector<std::string> lines;  // for the log, which is called without the lock
  int64_t now = 0;                 // of the last look that found the operation under way
  const auto add_line = [&](std::string line) {
    if (!line.empty()) lines.push_back(std::move(line));
  };
  const auto look = [&](bool last) -> Result<bool> {
    auto held = lock();
    if (!target.ended()) progress_locked(held);
    for (; !rank_->notices.empty(); rank_->notices.erase(rank_->notices.begin())) {
      lines.push_back(std::move(rank_->notices.front()));
    }
    if (!target.ended()) {
      now = now_ns();
      const bool due = target.inspection_due(now, kSleepNs) || last;
      if (due && !target.looked_after()) inspect_locked(held, target);
      if (!target.ended()) add_line(report_wait(held, target, now));
    }
    if (!target.ended()) {
      MERON_TRY(check_open());
      return false;
    }
    if (target.error()) {
      record_failure_locked(*target.error());
      return *target.error();
    }
    if (target.was_waited_for()) add_line(report_end(held, target));
    return true;
  };

  const auto tell = [&] {
    if (lines.empty()) return;
    for (const std::string& line : std::exchange(lines, {})) {
      options_.log(LogLevel::warning, line);
    }
  };

  MERON_ASSIGN(bool ended, look(false));
  tell();
  if (ended || timeout_ns == 0) return ended;

  const Waiting waiting(waiters_);
  const int64_t begun = now;
  const Deadline user = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  const Deadline deadline = target.deadline();
  int64_t next_stop_check = begun + kStopCheckNs;
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
    if (user.passed()) {
      MERON_ASSIGN(ended, look(deadline.passed()));
      break;
    }
    if (options_.should_stop && now >= next_stop_check) {
      next_stop_check = now + kStopCheckNs;
      if (options_.should_stop()) {
        return Error(MERON_E_CANCELLED, "should_stop asked the wait to end",
                     "the operation goes on: wait again, or abort the group")
            .during(target.describe());
      }
    }
    tell();
  }
  tell();
  add(rank_->counters.wait_ns, static_cast<uint64_t>(now_ns() - begun));
  return ended;
}

void Context::await_still(const Operation& operation) {
  while (true) {
    {
      auto held = lock();
      if (!operation.running() || running_here > 0) return;
    }
    Transport::Sleeper sleeper(*transport_);
    sleeper.sleep(kSpinNs);
  }
}

namespace {

// Copies to the device that were asked for, until they are done. Not a collective.
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
  std::shared_ptr<Operation> copies;
  {
    auto held = lock();
    MERON_TRY(check_open());
    copies = std::make_shared<DeviceCopiesOperation>(gather, rank_->deadline());
    submit_locked(held, copies);
  }
  return wait(copies, timeout_ns <= 0 ? timeout_ns : user.remaining());
}

void Context::inspect_locked(Held& held, Operation& target) {
  // What is looked at is the operation that the target waits for. A staged one waits for those
  // before it in its channel.
  Operation* head = &target;
  const std::shared_ptr<Operation> behind = target.behind();
  if (behind && !behind->ended()) {
    head = behind.get();
  } else if (target.staged()) {
    const auto first = std::find_if(pending_.begin(), pending_.end(), [&](const auto& other) {
      return other->staged() && !other->ended() && &other->channel() == &target.channel();
    });
    if (first != pending_.end()) head = first->get();
  }
  Operation& operation = *head;
  if (operation.running()) return;
  Channel& channel = operation.missing_in();
  // A rank that closed has done all it will do. Its words are read after this, so that what it did
  // last counts.
  std::vector<bool> left;
  int dead = -1;
  for (int m = 0; m < channel.size(); ++m) {
    const int rank = channel.members().world_rank(m);
    left.push_back(transport_->left(rank));
    if (dead < 0 && !left.back() && !transport_->alive(rank) && !transport_->left(rank)) dead = m;
  }
  advance_locked(held, operation);
  if (operation.ended() || operation.running()) return;

  const auto break_group = [&](Error error) {
    operation.finish(channel.fail(std::move(error).during(operation.describe())));
  };
  if (dead >= 0) {
    const int rank = channel.members().world_rank(dead);
    return break_group(
        Error(MERON_E_PEER_DEAD,
              fmt::format("{}; it {}", transport_->obituary(rank), channel.last_call_text(dead)),
              "see its output; `meron run` tells how it ended. Restart the job")
            .blaming(rank));
  }
  const std::vector<int> missing = missing_of(operation);
  for (const int m : missing) {
    if (!left[static_cast<size_t>(m)]) continue;
    if (!channel.is_local(m) && !operation.suspected_for_long(now_ns())) break;
    const int rank = channel.members().world_rank(m);
    return break_group(
        Error(MERON_E_PEER_CLOSED,
              fmt::format("rank {} closed its context while it was still needed; it {}", rank,
                          channel.last_call_text(m)),
              "let all ranks make the same calls before they close")
            .blaming(rank));
  }
  if (operation.deadline().passed() || target.deadline().passed()) {
    // What it waits for may wait for a save to copy it.
    if (saves_ && saves_->some_rank_copies(now_ns())) return;
    return break_group(Error(MERON_E_TIMEOUT,
                             fmt::format("the deadline of {} s passed: {}",
                                         static_cast<double>(rank_->timeout_ns) / kNanosPerSecond,
                                         waiting_text(held, operation)),
                             "look what the missing ranks do, or raise the timeout")
                           .blaming(missing.empty()
                                        ? MERON_RANK_NONE
                                        : channel.members().world_rank(missing.front())));
  }
}

Status Context::group_status(Channel& channel) {
  auto held = lock();
  MERON_TRY(check_open());
  MERON_TRY(channel.status());
  for (int m = 0; m < channel.size(); ++m) {
    const int rank = channel.members().world_rank(m);
    if (transport_->left(rank) || transport_->alive(rank) || transport_->left(rank)) continue;
    return channel.fail(
        Error(MERON_E_PEER_DEAD,
              fmt::format("{}; it {}", transport_->obituary(rank), channel.last_call_text(m)),
              "see its output; `meron run` tells how it ended. Restart the job")
            .blaming(rank));
  }
  return Ok{};
}

}  // namespace meron
