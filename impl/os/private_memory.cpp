// SPDX-License-Identifier: Apache-2.0
#include "os/private_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/layout.h"
#include "os/address_space.h"
#include "os/host.h"
#include "os/memory_guard.h"
#include "os/process.h"
#include "os/system_error.h"

namespace meron {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif

// 0, or why the pages have no memory.
int populate(std::byte* data, size_t size) {
  while (::madvise(data, size, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    for (size_t at = 0; at < size; at += page_size()) {
      *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{0};
    }
    break;
  }
  return 0;
}

}  // namespace

PrivateMemory& PrivateMemory::operator=(PrivateMemory&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    owner_pid_ = other.owner_pid_;
  }
  return *this;
}

Result<PrivateMemory> PrivateMemory::create(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX / 4) {
    return Error(MERON_E_ARGUMENT, fmt::format("cannot map {} bytes", bytes));
  }
  const size_t size = round_up(bytes, page_size());
  MERON_TRY(require_memory(size));
  PrivateMemory memory;
  MERON_ASSIGN(memory.data_, take_address_space(size));
  memory.size_ = size;
  memory.owner_pid_ = process_id();
  if (::mprotect(memory.data_, size, PROT_READ | PROT_WRITE) != 0) {
    return no_address_space(size, errno);
  }
  if (::madvise(memory.data_, size, MADV_DONTFORK) != 0) {
    return system_error("cannot keep memory from forked children", errno);
  }
  // Optimisations.
  (void)::madvise(memory.data_, size, MADV_HUGEPAGE);
  if (const int error = populate(memory.data_, size); error != 0) {
    return refused_memory(size, error);
  }
  return memory;
}

void PrivateMemory::unmap() {
  // In a forked child other memory may have the address.
  if (data_ != nullptr && process_id() == owner_pid_) ::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace meron
