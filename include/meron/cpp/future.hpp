// SPDX-License-Identifier: Apache-2.0
// meron/cpp/future.hpp: pending operations.
#ifndef MERON_CPP_FUTURE_HPP
#define MERON_CPP_FUTURE_HPP

#include <chrono>
#include <initializer_list>
#include <optional>

#include "meron/cpp/base.hpp"
#include "meron/future.h"

namespace meron {
inline namespace v1 {

// A pending operation without a result. After its destruction the operation continues, so that the
// ranks stay in step.
class Future : public Handle<meron_future, meron_future_release> {
 public:
  using Handle::Handle;

  // Waits until the operation has ended; throws its error. Blocks on peers, at most the deadline.
  void wait() const { detail::call(meron_future_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  // Waits up to `timeout`. Returns true if the operation has ended.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_future_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }
  // True if the operation has ended; throws its error. Does not wait.
  [[nodiscard]] bool poll() const { return detail::call(meron_future_poll, handle()) == MERON_OK; }
  // Waits, and releases the future, also if the wait throws.
  void finish() { detail::call(meron_future_finish, detach(), int64_t{MERON_TIMEOUT_DEFAULT}); }
};

// A pending operation of any kind, as an argument of wait_any: a Future, a Gather or an Update.
class AnyFuture {
 public:
  using Raw = meron_future;
  AnyFuture(const Handle<meron_future, meron_future_release>& pending) noexcept
      : raw_(pending.handle()) {}
  Raw handle() const noexcept { return raw_; }

 private:
  Raw raw_;
};

// Waits until one of several operations of a context has ended, well or not, and returns its place:
// the first such one. Its wait or poll then does not block, and throws its error. Null ones are
// skipped. Blocks on peers, at most the deadline. Throws MERON_E_HANDLE (all are null, or of
// different contexts), MERON_E_STALE, MERON_E_CANCELLED.
inline size_t wait_any(std::initializer_list<AnyFuture> pending) {
  const ListOf<AnyFuture> list(pending);
  return detail::receive(meron_future_wait_any, list.data(), list.size(),
                         int64_t{MERON_TIMEOUT_DEFAULT});
}
// The same, for at most `duration`; nothing if none has ended by then.
[[nodiscard]] inline std::optional<size_t> wait_any_for(std::initializer_list<AnyFuture> pending,
                                                        std::chrono::nanoseconds duration) {
  const ListOf<AnyFuture> list(pending);
  const size_t found =
      detail::receive(meron_future_wait_any, list.data(), list.size(), detail::timeout(duration));
  return found == list.size() ? std::nullopt : std::optional(found);
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_FUTURE_HPP
