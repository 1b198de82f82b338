// SPDX-License-Identifier: Apache-2.0
#include "os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/clock.h"

namespace meron {

// Neither call has FUTEX_PRIVATE_FLAG: the word is found by its page, so that processes
// that map the page at different addresses meet.

WakeReason futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns) {
  static_assert(sizeof(*word) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  const int64_t left = timeout_ns > 0 ? timeout_ns : 0;
  const timespec timeout{.tv_sec = static_cast<time_t>(left / kNanosPerSecond),
                         .tv_nsec = static_cast<long>(left % kNanosPerSecond)};
  const bool endless = timeout_ns == std::numeric_limits<int64_t>::max();
  const long result =
      ::syscall(SYS_futex, word, FUTEX_WAIT, expected, endless ? nullptr : &timeout, nullptr, 0);
  if (result == 0) return WakeReason::woken;
  switch (errno) {
    case EAGAIN:
      return WakeReason::changed;
    case ETIMEDOUT:
      return WakeReason::timeout;
    default:
      return WakeReason::interrupted;
  }
}

int futex_wake(std::atomic<uint32_t>* word, int count) {
  const long woken = ::syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  return woken > 0 ? static_cast<int>(woken) : 0;
}

}  // namespace meron
