// SPDX-License-Identifier: Apache-2.0
#include "engine/turn.h"

#include <chrono>

namespace meron {

bool TurnGate::take_if_free() {
  const std::lock_guard lock(mutex_);
  if (taken_) return false;
  taken_ = true;
  owner_ = std::this_thread::get_id();
  return true;
}

bool TurnGate::take(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  if (!free_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return !taken_; })) {
    return false;
  }
  taken_ = true;
  owner_ = std::this_thread::get_id();
  return true;
}

void TurnGate::give_back() {
  {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    owner_ = {};
  }
  free_.notify_one();
}

bool TurnGate::mine() {
  const std::lock_guard lock(mutex_);
  return taken_ && owner_ == std::this_thread::get_id();
}

}  // namespace meron
