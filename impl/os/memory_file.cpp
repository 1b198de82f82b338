// SPDX-License-Identifier: Apache-2.0
#include "os/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/human_bytes.h"
#include "base/layout.h"
#include "os/host.h"
#include "os/process.h"
#include "os/system_error.h"

namespace meron {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL = 0x0008U;  // Linux 6.3
#endif

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

UniqueFd create_memfd(const char* name) {
  // Hosts with vm.memfd_noexec=2 demand the flag, kernels before 6.3 do not know it.
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create(name, kFlags | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create(name, kFlags));
  return fd;
}

// Growing a file past this limit does not fail but raises SIGXFSZ, which ends the process.
Status check_file_size_limit(uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      bytes <= limit.rlim_cur) {
    return Ok{};
  }
  return Error(MERON_E_NO_MEMORY,
               fmt::format("{} of shared memory exceed the limit on file sizes of {}",
                           human_bytes(bytes), human_bytes(limit.rlim_cur)),
               "raise the limit on file sizes (ulimit -f), which the kernel applies to memory that "
               "ranks share too");
}

}  // namespace

Result<MemoryFile> MemoryFile::create(const std::string& name, uint64_t bytes) {
  if (bytes == 0 || bytes > static_cast<uint64_t>(INT64_MAX) - kPage) {
    return Error(MERON_E_ARGUMENT, fmt::format("a memory file cannot have {} bytes", bytes));
  }
  const uint64_t size = round_up(bytes, page_size());
  MERON_TRY(check_file_size_limit(size));
  UniqueFd fd = create_memfd(name.c_str());
  if (!fd.valid()) return memory_error("cannot make shared memory (memfd_create)", errno).on(name);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return memory_error(fmt::format("cannot size shared memory to {}", human_bytes(size)), errno)
        .on(name);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return memory_error("cannot seal shared memory", errno).on(name);
  }
  return MemoryFile(std::move(fd), size);
}

Result<MemoryFile> MemoryFile::adopt(UniqueFd fd, uint64_t expected_bytes) {
  const int seals = fd.valid() ? ::fcntl(fd.get(), F_GET_SEALS) : -1;
  if (seals < 0) return Error(MERON_E_AUTH, "the peer's descriptor is not shared memory");
  if ((seals & kSizeSeals) != kSizeSeals) {
    return Error(MERON_E_AUTH, "the peer's shared memory is not sealed against changes of size");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return system_error("cannot inspect the peer's shared memory", errno);
  }
  if (info.st_uid != effective_uid()) {
    return Error(MERON_E_AUTH, fmt::format("the peer's shared memory belongs to user {}, not {}",
                                           info.st_uid, effective_uid()));
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == 0 || size % page_size() != 0 || (expected_bytes != 0 && size != expected_bytes)) {
    return Error(
        MERON_E_MISMATCH,
        fmt::format("the peer's shared memory has {} bytes instead of {}", size, expected_bytes));
  }
  return MemoryFile(std::move(fd), size);
}

uint64_t MemoryFile::allocated_bytes() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return 0;
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

uint64_t MemoryFile::hole_bytes(uint64_t offset, uint64_t bytes) const {
  return meron::hole_bytes(fd_.get(), offset, bytes);
}

uint64_t hole_bytes(int fd, uint64_t offset, uint64_t bytes) {
  // The two calls walk from hole to data to hole; they move the file position, which is not used.
  const uint64_t end = offset + bytes;
  uint64_t holes = 0;
  while (offset < end) {
    const off_t data = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0) return holes + (end - offset);  // ENXIO: nothing but a hole up to the end
    const uint64_t data_begin = std::min<uint64_t>(end, static_cast<uint64_t>(data));
    holes += data_begin - offset;
    const off_t hole = ::lseek(fd, static_cast<off_t>(data_begin), SEEK_HOLE);
    if (hole < 0) return holes;
    offset = static_cast<uint64_t>(hole);
  }
  return holes;
}

}  // namespace meron
