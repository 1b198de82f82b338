// SPDX-License-Identifier: Apache-2.0
#include "os/poll.h"

#include <poll.h>

#include <cerrno>
#include <ctime>

#include "os/system_error.h"

namespace meron {

Status wait_ready(int fd, short events, Deadline deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int64_t left = deadline.remaining();
    const timespec timeout{.tv_sec = static_cast<time_t>(left / kNanosPerSecond),
                           .tv_nsec = static_cast<long>(left % kNanosPerSecond)};
    const int ready = ::ppoll(&entry, 1, deadline.is_never() ? nullptr : &timeout, nullptr);
    if (ready > 0) {
      if (entry.revents & POLLNVAL) return system_error("cannot wait on a descriptor", EBADF);
      return Ok{};
    }
    if (ready == 0) return Error(MERON_E_TIMEOUT, "the deadline passed");
    if (errno != EINTR) return system_error("cannot wait on a descriptor", errno);
  }
}

}  // namespace meron
