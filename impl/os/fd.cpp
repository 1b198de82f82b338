// SPDX-License-Identifier: Apache-2.0
#include "os/fd.h"

#include <fcntl.h>
#include <unistd.h>

namespace meron {

void UniqueFd::reset(int fd) {
  // Linux frees the descriptor even when close() reports EINTR: never close twice.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

UniqueFd UniqueFd::duplicate() const {
  return UniqueFd(fd_ < 0 ? -1 : ::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
}

}  // namespace meron
