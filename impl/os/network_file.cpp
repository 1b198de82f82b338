// SPDX-License-Identifier: Apache-2.0
#include "os/network_file.h"

#include <fcntl.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "os/system_error.h"

namespace meron {

bool on_network(int fd) {
  // NFS, SMB (three protocols), FUSE. Others, such as Lustre and Ceph, keep hosts coherent.
  constexpr std::array<uint32_t, 5> kTypes = {0x6969, 0x517B, 0xFF534D42, 0xFE534D42, 0x65735546};
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0) return true;
  const auto type = static_cast<uint32_t>(system.f_type);
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

Result<UniqueFd> open_to_write(const std::string& path, bool durable) {
  const int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | (durable ? O_DSYNC : 0);
  UniqueFd fd;
  do {
    fd.reset(::open(path.c_str(), flags));
  } while (!fd.valid() && errno == EINTR);
  if (!fd.valid()) return system_error("cannot open the file", errno).on(path);
  return fd;
}

}  // namespace meron
