// SPDX-License-Identifier: Apache-2.0
// Tensors of a checkpoint by their names, one read at a time: for looking at it, for conversions,
// and for states that the caller keeps himself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "os/direct_file.h"

namespace meron::checkpoint {

// Thread-safe: reads wait for each other. Keeps a few verified blocks, so that many small tensors
// cost one read of the block that has them.
class TensorReader {
 public:
  explicit TensorReader(Checkpoint checkpoint);
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const Manifest& manifest() const { return checkpoint_.manifest; }
  // Opens the files, up to kMaxHeldFiles of the process: they stay readable if another process
  // replaces or removes the checkpoint. MERON_E_NOT_FOUND if one has done so already.
  Status hold();
  // Null: it has no such tensor.
  const Tensor* find(std::string_view kind, std::string_view name) const;

  // Elements [begin, begin + count) of the tensor to `out`, of `bytes` bytes, as the files have
  // them; verified, unless the checkpoint is foreign. Errors: MERON_E_NOT_FOUND (no such tensor),
  // MERON_E_ARGUMENT (outside of it, another number of bytes), MERON_E_CORRUPT naming tensor, file
  // and offset, and those of opening and reading files.
  Status read(std::string_view kind, std::string_view name, uint64_t begin, uint64_t count,
              std::byte* out, uint64_t bytes);
  uint64_t bytes_read() const { return read_.load(std::memory_order_relaxed); }

 private:
  struct Opened {
    uint32_t file = 0;
    DirectFile io;
  };
  struct Block {
    uint32_t file = 0;
    uint64_t number = 0;
    std::vector<std::byte> data;
  };
  Result<const DirectFile*> open(uint32_t file);
  Result<const Block*> block(uint32_t file, uint64_t number);
  Status read_bytes(uint32_t file, uint64_t offset, uint64_t bytes, std::byte* out);
  Status read_piece(uint32_t file, uint64_t offset, uint64_t bytes, std::byte* out);

  const Checkpoint checkpoint_;
  std::map<std::pair<std::string_view, std::string_view>, const Tensor*> tensors_;
  std::mutex mutex_;          // of what follows
  std::list<Opened> opened_;  // the front was used last
  std::list<Block> blocks_;   // likewise
  std::atomic<uint64_t> read_{0};
};

}  // namespace meron::checkpoint
