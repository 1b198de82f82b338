// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/result.h"
#include "os/fd.h"

namespace meron {

// A descriptor that one thread makes readable for another's event loop: the kernel's eventfd,
// nonblocking and closed on exec.
class EventFd {
 public:
  // MERON_E_IO if no descriptor is left.
  static Result<EventFd> create();

  int get() const { return fd_.get(); }
  // Readable from now on. Never waits.
  void signal() const;
  // Not readable until the next signal(). Never waits.
  void clear() const;

 private:
  explicit EventFd(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace meron
