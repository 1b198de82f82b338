// SPDX-License-Identifier: Apache-2.0
#include "engine/pending_operations.h"

#include <algorithm>
#include <new>
#include <utility>

#include "call_log/channel.h"

namespace meron {
namespace {

// If ranks share no memory, words of a peer may arrive before the record of their call was
// compared.
Result<bool> advance_compared(Operation& operation) {
  Channel& channel = operation.channel();
  if (channel.link() != nullptr && operation.sequence() != 0 && !operation.begins_alone()) {
    MERON_ASSIGN(const bool agreed, channel.agreed(operation.sequence()));
    if (!agreed) return false;
  }
  return operation.advance();
}

// If memory runs out, the operation ends half-way. So the group must break: a later operation would
// use what this one has begun. The counts of running operations must be right afterwards.
Result<bool> advance_safely(Operation& operation) {
  try {
    return advance_compared(operation);
  } catch (const std::bad_alloc&) {
    Error error = Error(MERON_E_NO_MEMORY, "the process has no memory left for the operation",
                        "free memory, or use smaller units")
                      .during(operation.describe());
    if (operation.sequence() == 0) return error;
    return operation.channel().fail(std::move(error));
  }
}

// Counts a thread that walks the list, until it leaves, even by an exception.
class Passing {
 public:
  explicit Passing(int& passes) : passes_(passes) { ++passes_; }
  ~Passing() { --passes_; }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  int& passes_;
};

}  // namespace

thread_local int PendingOperations::running_here = 0;

void PendingOperations::advance(Held& /*held*/, Operation& operation) {
  // Another thread may be in the middle of what takes long.
  if (operation.ended() || operation.running()) return;
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

void PendingOperations::submit(Held& held, const std::shared_ptr<Operation>& operation) {
  // A staged operation must not overtake one that waits.
  const bool queue = operation->staged() && first_staged(held, operation->channel()) != nullptr;
  // It is added before it advances, which may release the lock: no later one may overtake it.
  if (queue) {
    list_.push_back(operation);
    return;
  }
  // Until it has advanced the caller's reference keeps it: most end here, and are never shared.
  const size_t place = list_.size();
  list_.emplace_back(std::shared_ptr<void>(), operation.get());
  ++passes_;  // so that no pass of another thread moves the places
  advance(held, *operation);
  --passes_;
  if (!operation->ended() || place + 1 < list_.size() || passes_ > 0) {
    list_[place] = operation;
  } else {
    list_.pop_back();
  }
}

bool PendingOperations::advance_all(Held& held) {
  if (list_.empty()) return false;
  std::vector<const Channel*> staged_heads;
  bool some_ended = false;
  const Passing passing(passes_);
  // While one computes others may be added, and other threads may pass.
  for (size_t i = 0; i < list_.size(); ++i) {
    Operation& operation = *list_[i];
    if (operation.ended()) continue;
    const Channel* channel = &operation.channel();
    const bool blocked = operation.staged() && std::find(staged_heads.begin(), staged_heads.end(),
                                                         channel) != staged_heads.end();
    if (!blocked) advance(held, operation);
    if (!operation.ended() && !operation.running()) {
      if (const Status status = channel->status(); !status.ok()) operation.finish(status.error());
    }
    some_ended = some_ended || operation.ended();
    if (!operation.ended() && operation.staged() && !blocked) staged_heads.push_back(channel);
  }
  if (passes_ == 1) {
    std::erase_if(list_, [](const auto& operation) { return operation->ended(); });
  }
  return some_ended;
}

void PendingOperations::end_all(Held& /*held*/, const Error& error) {
  for (const auto& operation : list_) operation->finish(error);
  if (passes_ == 0) list_.clear();
}

Operation* PendingOperations::first_staged(const Held& /*held*/, const Channel& channel) const {
  const auto first = std::find_if(list_.begin(), list_.end(), [&](const auto& operation) {
    return operation->staged() && !operation->ended() && &operation->channel() == &channel;
  });
  return first == list_.end() ? nullptr : first->get();
}

}  // namespace meron
