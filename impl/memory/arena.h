// SPDX-License-Identifier: Apache-2.0
// All memory of one rank: one memory file that peers on the host map read-only. This rank maps it
// writable, and a second time read-only for the views that users get.
//
// Memory is zero and populated when it is allocated (see os/mapping.h), except by promise(). It is
// charged exactly as footprint() of base/layout.h predicts. Large buffers are staggered, see
// kColorThreshold there.
// After fork() the child's arena refuses: allocate() fails and release() does nothing, so that a
// child that runs finalizers cannot destroy its parent's data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "memory/double_mapping.h"
#include "memory/offset_allocator.h"
#include "os/memory_file.h"

namespace meron {

enum class MemoryKind { param, gradient, optimizer, staging, control };
inline constexpr size_t kMemoryKinds = 5;
std::string_view name_of(MemoryKind kind);

// A piece of an arena, valid until it is released or the arena destroyed. A plain value: owns
// nothing.
struct Buffer {
  uint64_t offset = 0;        // of `data` within the arena: what a peer needs to find it
  std::byte* data = nullptr;  // not null for any allocated buffer, also an empty one
  uint64_t bytes = 0;
  uint64_t id = 0;  // never used twice, so that a second release is harmless

  explicit operator bool() const { return data != nullptr; }
};

struct ArenaOptions {
  uint64_t reserve = 0;  // address space in bytes; 0: the host's RAM. Less is taken where refused.
  uint64_t limit = 0;    // budget in charged bytes; 0: none
  std::string name = "meron-arena";
};

// Thread-safe; shared by the ranks of a process through std::shared_ptr.
class Arena {
 public:
  static Result<std::shared_ptr<Arena>> create(const ArenaOptions& options = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed memory of `bytes`, page aligned. From kColorThreshold on it is only 64-byte aligned,
  // except with `at_page`, for memory that a drive reads and writes past the page cache. `name`
  // describes the memory in errors. Zero bytes succeed and cost nothing.
  enum class Starts { anywhere, at_page };
  Result<Buffer> allocate(uint64_t bytes, MemoryKind kind, std::string_view name,
                          Starts starts = Starts::anywhere);

  // Reserves memory without pages: it must not be touched before provide() has populated it.
  // Charged at once, against the limit too; refused if the host lacks memory for this and all that
  // this rank was promised before, which allocate() checks too. For memory that may never be used.
  // `room`: to how many bytes extend() may make it grow, if the address space suffices.
  Result<Buffer> promise(uint64_t bytes, MemoryKind kind, std::string_view name, uint64_t room = 0);
  // Populates promised memory, zeroed. Does nothing for other buffers. MERON_E_NO_MEMORY: nothing
  // has changed, and it may be called again. One thread at a time may, for one buffer.
  Status provide(const Buffer& buffer, std::string_view name);
  // Makes provided memory grow in place to `bytes`, within its room; what is new is zeroed, real
  // and charged. Does nothing if the buffer has them. Errors and threads as provide().
  Status extend(const Buffer& buffer, uint64_t bytes, std::string_view name);

  // Returns the memory to the host. Does nothing for a buffer that is not live.
  void release(const Buffer& buffer);

  // Counts bytes that the rank takes elsewhere, its parts of the shared segment, as if they were
  // here: against the limit and in the counts below. Every charge needs a discharge.
  Status charge(uint64_t bytes, MemoryKind kind, std::string_view name);
  void discharge(uint64_t bytes, MemoryKind kind);

  // Charged bytes now, and the most that they ever were. Peaks never fall.
  uint64_t usage(MemoryKind kind) const;
  uint64_t peak(MemoryKind kind) const;
  uint64_t total_usage() const;
  uint64_t total_peak() const;

  uint64_t limit() const { return limit_; }
  std::byte* data() { return mapped_.writable().data(); }
  uint64_t size() const { return mapped_.size(); }
  // The read-only address of memory of this arena.
  const std::byte* readable(const std::byte* writable) {
    return mapped_.readable().data() + (writable - data());
  }
  const MemoryFile& file() const { return file_; }
  int fd() const { return file_.fd(); }  // for peers: see PeerArena

 private:
  struct Live {
    uint64_t block = 0;   // where the allocator's range begins
    uint64_t charge = 0;  // footprint(bytes)
    uint64_t length = 0;  // of the range: the charge, or more if the buffer may grow
    MemoryKind kind = MemoryKind::control;
    bool promised = false;  // not real yet
  };
  struct Count {
    uint64_t usage = 0;
    uint64_t peak = 0;
    void add(uint64_t bytes) {
      usage += bytes;
      if (usage > peak) peak = usage;
    }
  };

  Arena(MemoryFile file, DoubleMapping mapped, uint64_t limit);
  bool forked() const;
  Status check_process(std::string_view name) const;
  struct Block {
    uint64_t begin = 0, charge = 0, length = 0;
    uint64_t start = 0;  // where the buffer starts
  };
  // Finds a range within the limit; mutex_ is held.
  Result<Block> take_block(uint64_t bytes, uint64_t room, MemoryKind kind, std::string_view name,
                           Starts starts);
  Buffer add_live(const Block& block, uint64_t bytes, MemoryKind kind, bool promised);
  // Returns the block's memory to the host; it reads as zero from now on.
  void clear(uint64_t begin, uint64_t bytes);
  // Returns an error if `charge` more bytes, for a buffer of `bytes`, exceed the limit; mutex_ is
  // held.
  Status check_limit(uint64_t charge, uint64_t bytes, MemoryKind kind, std::string_view name) const;
  static Error no_room(uint64_t bytes, MemoryKind kind, std::string_view name, const Error& why);
  static Error no_room(uint64_t bytes, MemoryKind kind, std::string_view name, std::string_view why,
                       std::string_view advice);

  const int32_t owner_pid_;
  const uint64_t limit_;
  MemoryFile file_;
  DoubleMapping mapped_;

  mutable std::mutex mutex_;  // guards all below; not held while pages are populated or discarded
  OffsetAllocator offsets_;
  std::map<uint64_t, Live> live_;  // by Buffer::id
  uint64_t next_id_ = 1;
  uint64_t next_color_ = 0;
  uint64_t high_end_ = 0;  // where the highest block that ever was ends
  uint64_t pending_ = 0;   // charges of allocations under way: they count against the limit only
  uint64_t promised_ = 0;  // charges of what is promised and not real
  std::array<Count, kMemoryKinds> counts_{};
  Count total_;
};

}  // namespace meron
