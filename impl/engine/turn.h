// SPDX-License-Identifier: Apache-2.0
// The turn to begin something. One thread of a rank at a time makes calls that begin or change
// things, each from its checks to its end, even while it releases the context's lock for a wait, a
// function of the trainer or a copy. So all ranks post their calls in one order, and the checks of
// a call stay valid. Calls that only read, and operations under way, need no turn.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/result.h"

namespace meron {

class TurnGate {
 public:
  bool take_if_free() {
    const void* nobody = nullptr;
    return owner_.compare_exchange_strong(nobody, this_thread());
  }
  // At most that long; false: another thread still has it.
  bool take(int64_t timeout_ns);
  void give_back() {
    owner_.store(nullptr);
    if (waiting_.load() > 0) wake();
  }
  // True if the calling thread has it.
  bool mine() const { return owner_.load() == this_thread(); }

 private:
  // An address that differs between threads.
  static const void* this_thread() {
    static thread_local char place __attribute__((tls_model("initial-exec")));
    return &place;
  }
  void wake();

  std::atomic<const void*> owner_{nullptr};
  std::atomic<int> waiting_{0};
  std::mutex mutex_;  // a leaf: nothing is called under it
  std::condition_variable free_;
};

// The calling thread's turn, until this object is destroyed.
class Turn {
 public:
  explicit Turn(TurnGate& gate) : gate_(&gate) {}  // which was taken
  ~Turn() {
    if (gate_ != nullptr) gate_->give_back();
  }
  Turn(Turn&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
  Turn& operator=(Turn&&) = delete;

 private:
  TurnGate* gate_;
};

}  // namespace meron
