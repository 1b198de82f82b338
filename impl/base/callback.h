// SPDX-License-Identifier: Apache-2.0
// Marks a thread as within one of the trainer's functions, so that a call which would begin or wait
// for something there can be refused (capi/callbacks.h).
#pragma once

#include <cstdint>
#include <utility>

namespace meron {

enum class Callback : uint8_t { none, log, should_stop, allocator, transport };

// Around each call of such a function. Scopes nest: the innermost counts.
class CallbackScope {
 public:
  explicit CallbackScope(Callback callback) : before_(std::exchange(here_, callback)) {}
  ~CallbackScope() { here_ = before_; }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

  // The one that the calling thread is in; none if it is in none.
  static Callback here() { return here_; }

 private:
  static thread_local Callback here_ __attribute__((tls_model("initial-exec")));
  const Callback before_;
};

}  // namespace meron
