// SPDX-License-Identifier: Apache-2.0
// Memory of this process alone, in huge pages where the kernel grants them, for drives to read and
// write directly. A drive takes a huge page in one piece, and small pages one by one; shared memory
// has huge pages only where the administrator of the host switched them on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace meron {

// A child that is forked neither has the memory nor shares its pages, which a drive may be writing.
class PrivateMemory {
 public:
  PrivateMemory() = default;
  PrivateMemory(PrivateMemory&& other) noexcept { *this = std::move(other); }
  PrivateMemory& operator=(PrivateMemory&& other) noexcept;
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;
  ~PrivateMemory() { unmap(); }

  // `bytes` (rounded up to pages, not 0) zeros that have memory, aligned to a huge page. Errors:
  // MERON_E_ARGUMENT; MERON_E_NO_MEMORY if the host, its cgroup or a limit has not enough.
  static Result<PrivateMemory> create(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool valid() const { return data_ != nullptr; }

 private:
  void unmap();

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int32_t owner_pid_ = 0;
};

}  // namespace meron
