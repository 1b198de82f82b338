// SPDX-License-Identifier: Apache-2.0
#include "engine/turn.h"

#include <chrono>

namespace meron {

// Either this thread sees that it is free, or who frees it sees that this one waits.
bool TurnGate::take(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  waiting_.fetch_add(1);
  const bool taken =
      free_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return take_if_free(); });
  waiting_.fetch_sub(1);
  return taken;
}

void TurnGate::wake() {
  const std::lock_guard lock(mutex_);
  free_.notify_one();
}

}  // namespace meron
