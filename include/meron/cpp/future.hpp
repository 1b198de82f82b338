// SPDX-License-Identifier: Apache-2.0
// meron/cpp/future.hpp: pending operations.
#ifndef MERON_CPP_FUTURE_HPP
#define MERON_CPP_FUTURE_HPP

#include <chrono>

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
};

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_FUTURE_HPP
