// SPDX-License-Identifier: Apache-2.0
// Ranges of the files of a checkpoint, read ahead in the order in which they are wanted, and
// verified before any byte is returned.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "checkpoint/open_files.h"
#include "checkpoint/read_plan.h"
#include "checkpoint/staging.h"

namespace meron::checkpoint {

// A block of a file, by their numbers.
struct BlockPlace {
  uint32_t file = 0;
  uint64_t block = 0;

  auto operator<=>(const BlockPlace&) const = default;
};

struct ReaderOptions {
  uint64_t block_bytes = 1 << 20;  // Manifest::block_bytes; a read has as many as the staging's has
  bool verify = true;              // false: the files have no checksums
  bool links = false;              // true: links are followed
  std::shared_ptr<HeldFiles> held = nullptr;  // the directory, if it is open already
  int64_t timeout_ns = -1;                    // of a read that does not end; negative: none
  // Ascending: local peers want bytes of these too, so they are read through the page cache.
  std::vector<BlockPlace> shared = {};
};

// Used by one thread, but for cancel() and bytes_read(). The first failure is final: every later
// call returns it again. Begins as many reads ahead as the staging has blocks.
class BlockReader {
 public:
  // `files` must stay. Each file of a range must exist, beneath the directory, with its size.
  // Errors: MERON_E_ARGUMENT for a range outside of its file; MERON_E_CORRUPT for another size or
  // number of checksums; MERON_E_NOT_FOUND; MERON_E_AUTH for a link.
  static Result<std::unique_ptr<BlockReader>> create(std::shared_ptr<Staging> staging,
                                                     const std::string& directory,
                                                     std::span<const File> files,
                                                     std::vector<WantedRange> ranges,
                                                     const ReaderOptions& options);
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // The next bytes of the present range, valid until the next call; none once at the range's end,
  // after which the next range is the present one. Waits for the drive. Errors: MERON_E_CORRUPT
  // naming the file, the block's offset, and the checksums found and expected, or for a file that
  // was cut; MERON_E_STATE after the last range; MERON_E_TIMEOUT, MERON_E_CANCELLED; what the drive
  // says.
  Result<std::span<const std::byte>> next();

  // Ends a wait under way soon, and fails all later calls. From any thread.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  // Of the files, which is more than the ranges have where they end within blocks. From any thread.
  uint64_t bytes_read() const { return read_.load(std::memory_order_relaxed); }

 private:
  BlockReader(std::shared_ptr<Staging> staging, const std::string& directory,
              std::span<const File> files, std::vector<WantedRange> ranges,
              const ReaderOptions& options);

  struct Slot {
    PlannedRead read;
    Staging::Block block;
    std::shared_ptr<IoTicket> ticket = nullptr;
    std::shared_ptr<IoFile> file = nullptr;
    bool arrived = false;
    uint64_t verified = 0;  // of its first bytes: whole blocks
  };

  Result<std::span<const std::byte>> next_piece();
  // Begins reads as far ahead as there are blocks.
  Status read_ahead();
  // Lets the system read ahead for reads through its page cache. Such a read begins when the one
  // before it has ended, so the drive would be idle in between.
  Status announce();
  Status await_front();
  // The checksums of its blocks up to that of byte `at` of the file.
  Status verify(Slot* slot, uint64_t at) const;

  // The bytes of the slot in front, once await_front() was well.
  const std::byte* front_data() const;
  // Takes the front off, and keeps its block if it is wanted again.
  void pop_front();

  std::shared_ptr<Staging> staging_;
  const std::span<const File> files_;
  const std::vector<WantedRange> ranges_;
  const ReaderOptions options_;
  OpenFiles open_files_;
  std::vector<PlannedRead> reads_;
  size_t begun_ = 0;                                 // of reads_
  size_t announced_ = 0;                             // of reads_
  std::deque<Slot> slots_;                           // begun; bytes of the first are being returned
  std::map<uint32_t, std::vector<std::byte>> kept_;  // by file: PlannedRead::keep
  size_t range_ = 0;                                 // the present one
  uint64_t position_ = 0;                            // bytes of it that were returned
  std::optional<Error> failed_;
  std::atomic<uint64_t> read_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace meron::checkpoint
