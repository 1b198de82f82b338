// SPDX-License-Identifier: Apache-2.0
// The bounded memory through which the bytes of a checkpoint pass to and from its files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/io_engine.h"
#include "os/private_memory.h"

namespace meron::checkpoint {

inline constexpr uint64_t kStagingBlock = 4 << 20;  // bytes of a write
inline constexpr size_t kStagingBlocks = 8;

// A ring of page-aligned blocks, allocated once and registered with the engine. One writer or
// reader uses it at a time. Owned by one thread at a time.
//
// A transfer that a writer or reader has abandoned keeps its block until it has ended. Blocks that
// a drive still uses at the end are never freed.
class Staging {
 public:
  // `block_bytes` is a multiple of the page. Errors: MERON_E_ARGUMENT, MERON_E_NO_MEMORY.
  static Result<std::shared_ptr<Staging>> create(std::shared_ptr<IoEngine> engine,
                                                 uint64_t block_bytes = kStagingBlock,
                                                 size_t blocks = kStagingBlocks);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  IoEngine& engine() const { return *engine_; }
  uint64_t block_bytes() const { return block_bytes_; }
  size_t blocks() const { return transfers_.size(); }

  // The next block of the ring, and the transfer that used it last: null, or to be waited for
  // before the block is touched.
  struct Block {
    std::byte* data = nullptr;
    size_t number = 0;
  };
  Block next();
  const std::shared_ptr<IoTicket>& transfer(const Block& block) const {
    return transfers_[block.number];
  }
  // Makes the transfer the block's last.
  void keep(const Block& block, std::shared_ptr<IoTicket> transfer) {
    transfers_[block.number] = std::move(transfer);
  }

 private:
  Staging(std::shared_ptr<IoEngine> engine, uint64_t block_bytes, size_t blocks)
      : engine_(std::move(engine)), block_bytes_(block_bytes), transfers_(blocks) {}

  std::shared_ptr<IoEngine> engine_;
  uint64_t block_bytes_;
  PrivateMemory memory_;
  std::vector<std::shared_ptr<IoTicket>> transfers_;  // by block
  size_t next_ = 0;
};

// Waits until the transfer has ended, however it did. Errors: MERON_E_TIMEOUT naming `path` after
// `timeout_ns` (negative: without bound), MERON_E_CANCELLED soon after `cancelled` is set.
Status wait_for(const IoTicket& transfer, const std::string& path, int64_t timeout_ns,
                const std::atomic<bool>& cancelled);

}  // namespace meron::checkpoint
