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
inline namespace MERON_CPP_NAMESPACE {

namespace detail {

// A pending operation of any kind: the waits of Future, Gather, GatherCopy, Update and IoRequest.
class Operation : public Handle<meron_future, meron_future_release> {
 public:
  using Handle::Handle;

  // Waits until the operation has ended; throws its error. Blocks on peers, at most the deadline.
  void wait() const { call(meron_future_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  // Waits up to `duration`. Returns true if the operation has ended; throws its error.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return call(meron_future_wait, handle(), timeout(duration)) == MERON_OK;
  }
  // True if the operation has ended; throws its error. Does not wait.
  [[nodiscard]] bool poll() const { return call(meron_future_poll, handle()) == MERON_OK; }
  // The same without exceptions, for loops that poll often: MERON_OK, MERON_IN_PROGRESS or, if the
  // operation has failed, its status. Then wait and poll throw the error, with its message.
  [[nodiscard]] meron_status try_poll() const noexcept {
    return meron_future_poll(handle(), nullptr);
  }

 protected:
  Operation() noexcept = default;
  Operation(Operation&&) noexcept = default;
  Operation& operator=(Operation&&) noexcept = default;
  ~Operation() = default;
};

}  // namespace detail

// A pending operation without a result. After its destruction the operation continues, so that the
// ranks stay in step.
class Future : public detail::Operation {
 public:
  using Operation::Operation;

  // Waits, and releases the future, also if the wait throws.
  void finish() { detail::call(meron_future_finish, detach(), int64_t{MERON_TIMEOUT_DEFAULT}); }
};

class IoRequest;

// A pending operation of a context, as an argument of wait_any: a Future, Gather, GatherCopy or
// Update.
class AnyFuture {
 public:
  using Raw = meron_future;
  AnyFuture(const detail::Operation& pending) noexcept : raw_(pending.handle()) {}
  AnyFuture(const IoRequest&) = delete;  // it belongs to no context
  Raw handle() const noexcept { return raw_; }

 private:
  Raw raw_;
};

// Waits until one of several operations of a context has ended, well or not, and returns its place:
// the first such one. Its wait or poll then does not block, and throws its error. Null ones are
// skipped. Blocks on peers, at most the deadline. Throws MERON_E_HANDLE (all are null, or of
// different contexts), MERON_E_STALE, MERON_E_CANCELLED. `pending`: a list in braces or a range.
template <class Range>
size_t wait_any(const Range& pending) {
  const ListOf<AnyFuture> list(pending);
  return detail::receive(meron_future_wait_any, list.data(), list.size(),
                         int64_t{MERON_TIMEOUT_DEFAULT});
}
inline size_t wait_any(std::initializer_list<AnyFuture> pending) {
  return wait_any<std::initializer_list<AnyFuture>>(pending);
}
// The same, for at most `duration`; nothing if none has ended by then.
template <class Range>
[[nodiscard]] std::optional<size_t> wait_any_for(const Range& pending,
                                                 std::chrono::nanoseconds duration) {
  const ListOf<AnyFuture> list(pending);
  const size_t found =
      detail::receive(meron_future_wait_any, list.data(), list.size(), detail::timeout(duration));
  return found == list.size() ? std::nullopt : std::optional(found);
}
[[nodiscard]] inline std::optional<size_t> wait_any_for(std::initializer_list<AnyFuture> pending,
                                                        std::chrono::nanoseconds duration) {
  return wait_any_for<std::initializer_list<AnyFuture>>(pending, duration);
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_FUTURE_HPP
