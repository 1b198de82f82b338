// SPDX-License-Identifier: Apache-2.0
#include "os/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/human_bytes.h"
#include "base/layout.h"
#include "os/address_space.h"
#include "os/host.h"
#include "os/memory_file.h"
#include "os/memory_guard.h"
#include "os/system_error.h"

namespace meron {
namespace {

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14
constexpr int MADV_POPULATE_WRITE = 23;
#endif

// Between two pieces the free memory is checked again, because other processes allocate too.
constexpr size_t kPiece = 64ull << 20;

constexpr uint64_t round_down(uint64_t value, uint64_t multiple) {
  return value / multiple * multiple;
}

}  // namespace

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    access_ = other.access_;
    fd_ = std::move(other.fd_);
  }
  return *this;
}

Result<Mapping> Mapping::map_file(int fd, size_t bytes, Access access) {
  if (bytes == 0 || bytes > SIZE_MAX / 4) {
    return Error(MERON_E_ARGUMENT, fmt::format("cannot map {} bytes", bytes));
  }
  Mapping mapping;
  mapping.access_ = access;
  mapping.fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!mapping.fd_.valid()) return system_error("cannot keep a descriptor for a mapping", errno);

  const size_t size = round_up(bytes, page_size());
  MERON_ASSIGN(std::byte* const space, take_address_space(size));
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const mapped =
      ::mmap(space, size, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, mapping.fd_.get(), 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::munmap(space, size);
    if (error == ENOMEM) return no_address_space(size, error);
    return memory_error(fmt::format("cannot map {} of shared memory", human_bytes(size)), error);
  }
  mapping.data_ = static_cast<std::byte*>(mapped);
  mapping.size_ = size;
  return mapping;
}

void Mapping::unmap() {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

Status Mapping::check_range(size_t offset, size_t bytes, const char* verb) const {
  if (offset > size_ || bytes > size_ - offset) {
    return Error(MERON_E_ARGUMENT, fmt::format("cannot {} {} bytes at {} of a mapping of {}", verb,
                                               bytes, offset, size_));
  }
  if (access_ != Access::read_write) {
    return Error(MERON_E_ARGUMENT, fmt::format("cannot {} a read-only mapping", verb));
  }
  return Ok{};
}

Status Mapping::populate(size_t offset, size_t bytes) {
  MERON_TRY(check_range(offset, bytes, "populate"));
  if (bytes == 0) return Ok{};
  size_t begin = round_down(offset, page_size());
  const size_t end = std::min<size_t>(size_, round_up(offset + bytes, page_size()));
  MERON_TRY(require_memory(hole_bytes(fd_.get(), begin, end - begin)));

  // Only full huge pages within the range: a huge page that sticks out would charge this range
  // for its neighbour.
  const size_t huge_begin = round_up(begin, kHugePage);
  const size_t huge_end = round_down(end, kHugePage);
  if (huge_begin < huge_end) ::madvise(data_ + huge_begin, huge_end - huge_begin, MADV_HUGEPAGE);

  for (bool first = true; begin < end; first = false) {
    const size_t stop = std::min<size_t>(end, round_down(begin + kPiece, kHugePage));
    if (!first) MERON_TRY(require_memory(hole_bytes(fd_.get(), begin, stop - begin)));
    MERON_TRY(populate_piece(begin, stop));
    begin = stop;
  }
  return Ok{};
}

Status Mapping::populate_piece(size_t begin, size_t end) {
  int error;
  do {
    error = ::madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error == EINVAL || error == ENOSYS) {
    // Before Linux 5.14: make the pages in the file; the first touch then only enters them into
    // the page table.
    do {
      error =
          ::fallocate(fd_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0
              ? 0
              : errno;
    } while (error == EINTR);
  }
  if (error == 0) return Ok{};
  return refused_memory(end - begin, error);
}

void Mapping::prefault(size_t offset, size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset || bytes == 0) return;
  const size_t begin = round_down(offset, page_size());
  const size_t end = std::min<size_t>(size_, round_up(offset + bytes, page_size()));
  ::madvise(data_ + begin, end - begin, MADV_POPULATE_READ);
}

Status Mapping::discard(size_t offset, size_t bytes) {
  MERON_TRY(check_range(offset, bytes, "discard"));
  const size_t begin = round_up(offset, page_size());
  const size_t end = round_down(offset + bytes, page_size());
  if (begin >= end) return Ok{};
  while (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(begin), static_cast<off_t>(end - begin)) != 0) {
    if (errno != EINTR) return memory_error("cannot give memory back to the host", errno);
  }
  return Ok{};
}

}  // namespace meron
