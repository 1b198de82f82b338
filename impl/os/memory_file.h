// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory of a fixed size that only descriptors name: nothing of it is left on the
// host when its last owner dies, a small /dev/shm does not bound it, and its seals keep every
// holder, also a hostile one, from shrinking it under a reader (which would be a SIGBUS).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "os/fd.h"

namespace meron {

class MemoryFile {
 public:
  MemoryFile() = default;

  // A sparse file of `bytes` (rounded up to pages, not 0) zeros; takes no memory yet. `name` is
  // what /proc/<pid>/maps shows.
  static Result<MemoryFile> create(const std::string& name, uint64_t bytes);

  // Takes over a descriptor that a peer sent. Refuses what is not a memory file, may change its
  // size, belongs to another user or has a size other than `expected_bytes` (0: any).
  static Result<MemoryFile> adopt(UniqueFd fd, uint64_t expected_bytes = 0);

  int fd() const { return fd_.get(); }
  uint64_t size() const { return size_; }
  // Memory that the file's pages occupy at the moment.
  uint64_t allocated_bytes() const;
  // Of [offset, offset + bytes), how much has no page yet.
  uint64_t hole_bytes(uint64_t offset, uint64_t bytes) const;

 private:
  MemoryFile(UniqueFd fd, uint64_t size) : fd_(std::move(fd)), size_(size) {}

  UniqueFd fd_;
  uint64_t size_ = 0;
};

// MemoryFile::hole_bytes for any file that knows its holes.
uint64_t hole_bytes(int fd, uint64_t offset, uint64_t bytes);

}  // namespace meron
