// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a host share: the shared segment with sharded parameters, in which each
// rank writes its own ranges, and the arenas of peers, which a rank only reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "memory/double_mapping.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron {

// Mapped twice: writable for the ranges that this rank owns, read-only for the views that users
// get. See DoubleMapping.
//
// Thread-safe; ranks that are threads of one process share one Window. Its users agree on the
// owners of ranges. After fork() the child may read, but reserve() and discard() refuse.
class Window {
 public:
  // `reserve` bytes of address space, rounded up to pages; 0: the host's RAM. Less is taken where
  // refused, see size(). Takes no memory.
  static Result<std::shared_ptr<Window>> create(uint64_t reserve = 0);
  // Maps the window that a peer created.
  static Result<std::shared_ptr<Window>> attach(UniqueFd fd);

  std::byte* writable(uint64_t offset) { return mapped_.writable().data() + offset; }
  const std::byte* readable(uint64_t offset) const { return mapped_.readable().data() + offset; }

  // Makes the range real. Pages at its ends may be shared with neighbours: no byte is changed,
  // fresh ones are zero. Concurrent calls, of any rank, are fine.
  Status reserve(uint64_t offset, uint64_t bytes);
  // Enters pages of any owner, once they are reserved, into this process' page table.
  void prefault(uint64_t offset, uint64_t bytes) const;
  // Returns the memory of the whole pages within the range; they read as zero from now on.
  Status discard(uint64_t offset, uint64_t bytes);
  // The same, and all of the range reads as zero. The caller has reserved it, and owns it alone.
  void clear(uint64_t offset, uint64_t bytes);

  uint64_t size() const { return file_.size(); }
  int fd() const { return file_.fd(); }
  uint64_t allocated_bytes() const { return file_.allocated_bytes(); }

 private:
  Window(MemoryFile file, DoubleMapping mapped);
  static Result<std::shared_ptr<Window>> map(MemoryFile file);
  Status check_owner(const char* verb) const;

  const int32_t owner_pid_;
  MemoryFile file_;
  DoubleMapping mapped_;
};

// A peer's arena, read-only. Valid also after the peer has died.
class PeerArena {
 public:
  static Result<std::shared_ptr<PeerArena>> attach(UniqueFd fd);

  const std::byte* readable(uint64_t offset) const { return mapping_.data() + offset; }
  uint64_t size() const { return mapping_.size(); }
  // See Window::prefault.
  void prefault(uint64_t offset, uint64_t bytes) const { mapping_.prefault(offset, bytes); }

 private:
  explicit PeerArena(Mapping mapping) : mapping_(std::move(mapping)) {}

  Mapping mapping_;
};

}  // namespace meron
