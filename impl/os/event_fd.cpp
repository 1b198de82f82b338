// SPDX-License-Identifier: Apache-2.0
#include "os/event_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "os/system_error.h"

namespace meron {

Result<EventFd> EventFd::create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd.valid()) return EventFd(std::move(fd));
  return system_error("cannot make an event descriptor", errno,
                      "close descriptors, or raise the limit on them (ulimit -n)");
}

void EventFd::signal() const {
  const uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void EventFd::clear() const {
  uint64_t signals = 0;
  while (::read(fd_.get(), &signals, sizeof(signals)) < 0 && errno == EINTR) {
  }
}

}  // namespace meron
