// SPDX-License-Identifier: Apache-2.0
// Space on a drive for the states of one rank: ranges of one file without a name, and
// checksums, kept in memory, of what was written there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "io/io_engine.h"
#include "os/mapping.h"

namespace meron {

// Of one checksum. Extents begin at multiples of it, which direct I/O can take.
inline constexpr uint64_t kSwapBlock = 64 << 10;

// A range of the file, a plain value.
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // as requested; the file has space up to the next multiple of kSwapBlock
};

struct SwapOptions {
  uint64_t expected = 0;  // bytes that must be free in the directory; they are not taken yet
  // Writes zeros over what the file grows by: the first write to a block that only has room takes
  // several times as long as all that follow, which then would fall into training steps.
  bool prewrite = true;
};

// Thread-safe.
class SwapFile {
 public:
  // Errors: those of DirectFile::create, which name `directory`.
  static Result<std::shared_ptr<SwapFile>> create(const std::shared_ptr<IoEngine>& engine,
                                                  const std::string& directory,
                                                  const SwapOptions& options = {});
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  // A range that no other extent shares, at a multiple of kSwapBlock. If none is free, the file
  // grows, which waits for the disk. Errors: MERON_E_NO_SPACE with need and free bytes if the disk
  // is full, and then the file is unchanged; MERON_E_TIMEOUT; errors of the disk.
  Result<Extent> allocate(uint64_t bytes, Deadline deadline = Deadline::never());
  // Its checksums are forgotten; the disk's room is kept for later extents. No transfer may be
  // under way there.
  void free(const Extent& extent);

  // The file for the engine's transfers, with offsets within extents.
  const std::shared_ptr<IoFile>& file() const { return file_; }

  // Remembers the checksums of the blocks that a write of `data` to `offset`, a multiple of
  // kSwapBlock, fills. The last one may be filled in part. Callers compute: several threads may
  // work on different blocks at the same time, and before the write or while it is under way.
  void seal(uint64_t offset, const std::byte* data, uint64_t bytes);

  // Checks that `data`, read from `offset`, was sealed in the same blocks. MERON_E_CORRUPT
  // names path, offset and block of the first that differs; MERON_E_INTERNAL that of one which was
  // not sealed, or with another length.
  Status verify(uint64_t offset, const std::byte* data, uint64_t bytes) const;

  uint64_t size() const;       // of the file
  uint64_t allocated() const;  // of it, in extents

 private:
  struct Checksum {
    uint32_t crc = 0;
    uint32_t bytes = 0;  // that it is of; 0: nothing was sealed
  };

  SwapFile(std::shared_ptr<IoEngine> engine, std::shared_ptr<IoFile> file, bool prewrite);
  // Makes the file `bytes` longer.
  Status grow(uint64_t bytes, Deadline deadline);
  Status write_zeros(uint64_t offset, uint64_t bytes, Deadline deadline);
  // Until at most so many writes of zeros are under way.
  Status wait_for_zeros(size_t most_left, bool count_errors, Deadline deadline);
  void add_free(uint64_t offset, uint64_t bytes);
  Status check_block(uint64_t offset, const std::byte* data, uint64_t bytes) const;

  const std::shared_ptr<IoEngine> engine_;
  const std::shared_ptr<IoFile> file_;
  const bool prewrite_;

  mutable std::mutex mutex_;           // guards the ranges; held while the file grows
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes; never adjacent
  uint64_t size_ = 0, allocated_ = 0;
  // The buffer of prewriting; writes that a deadline did not wait for, or that come after one that
  // failed, are waited for before the file grows again.
  Mapping zeros_;
  std::deque<std::shared_ptr<IoTicket>> zero_writes_;

  // Shared by those that use entries, each its own; exclusive while the table grows.
  mutable std::shared_mutex table_mutex_;
  std::vector<Checksum> checksums_;  // by block of the file
};

}  // namespace meron
