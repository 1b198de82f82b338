// SPDX-License-Identifier: Apache-2.0
// One file of a checkpoint, written as one stream through bounded staging, with a checksum per
// block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/block_checksums.h"
#include "checkpoint/staging.h"
#include "io/io_engine.h"

namespace meron::checkpoint {

struct WriterOptions {
  uint64_t total_bytes = 0;                      // that the file will have
  uint64_t block_bytes = 1 << 20;                // of a checksum
  int64_t timeout_ns = -1;                       // of a write that does not end; negative: none
  const std::atomic<bool>* cancelled = nullptr;  // set: as cancel(). Outlives the writer
};

// Used by one thread, but for cancel() and bytes_written(). The first failure is final: every later
// call returns it again, and the file is worth nothing. Destroying a writer waits for nothing.
class BlockWriter {
 public:
  // Makes the file, whose name must be free, and takes the room for all its bytes. Errors:
  // MERON_E_NO_SPACE with need and free bytes, and the file is removed; errors of the drive.
  static Result<std::unique_ptr<BlockWriter>> create(std::shared_ptr<Staging> staging,
                                                     const std::string& path,
                                                     const WriterOptions& options);
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // Room for the next bytes of the file, at most `max` and at least one: the caller fills a prefix
  // of it and commits that. Valid until the next call. While the ring is full it waits for the
  // oldest write. Errors: MERON_E_ARGUMENT if the file has all its bytes or `max` is 0;
  // MERON_E_TIMEOUT, MERON_E_CANCELLED, and the errors of earlier writes, with path and offset.
  Result<std::span<std::byte>> space(uint64_t max);
  // The next `bytes` were filled. Begins a write when the staging block is full.
  Status commit(uint64_t bytes);

  // Writes the rest, waits for all writes and syncs the file. The checksums (CRC-32C), one per
  // block; the last block may be short. The timeout is that of each wait, not of the sync, which
  // takes as long as the drive. Errors: MERON_E_STATE if bytes are missing; those of space().
  Result<std::vector<uint32_t>> finish();
  Result<std::vector<uint32_t>> finish(int64_t timeout_ns);

  // Ends a wait under way soon, and fails all later calls. From any thread.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  // That are in the file, though not yet synced. From any thread.
  uint64_t bytes_written() const { return written_.load(std::memory_order_relaxed); }

 private:
  BlockWriter(std::shared_ptr<Staging> staging, std::string path, const WriterOptions& options)
      : staging_(std::move(staging)),
        path_(std::move(path)),
        options_(options),
        checksums_(options.block_bytes) {}

  const std::atomic<bool>& cancelled() const {
    return options_.cancelled != nullptr ? *options_.cancelled : cancelled_;
  }
  Status check_usable();
  // Makes the status final if it is a failure.
  Status settle(Status status);
  Status take_block();
  void write_block();
  // Counts what has ended.
  Status collect();
  Status finish_all(int64_t timeout_ns);

  struct Write {
    std::shared_ptr<IoTicket> ticket;
    uint64_t bytes = 0;
  };

  std::shared_ptr<Staging> staging_;
  const std::string path_;
  const WriterOptions options_;
  std::shared_ptr<IoFile> file_;
  std::optional<Error> failed_;
  std::deque<Write> under_way_;
  std::optional<Staging::Block> block_;  // being filled
  uint64_t filled_ = 0;                  // bytes of it
  uint64_t submitted_ = 0;               // bytes of the file that were given to the engine
  BlockChecksums checksums_;
  std::atomic<uint64_t> written_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace meron::checkpoint
