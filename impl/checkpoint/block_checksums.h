// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/crc32c.h"

namespace meron::checkpoint {

// The CRC-32C of each block of a stream, whose bytes are added in pieces of any length.
class BlockChecksums {
 public:
  explicit BlockChecksums(uint64_t block_bytes) : block_bytes_(block_bytes) {}

  void add(const std::byte* data, uint64_t bytes) {
    while (bytes != 0) {
      if (in_last_ == 0) checksums_.push_back(0);
      const uint64_t piece = std::min(bytes, block_bytes_ - in_last_);
      checksums_.back() = kernels::crc32c(data, piece, checksums_.back());
      in_last_ = (in_last_ + piece) % block_bytes_;
      data += piece;
      bytes -= piece;
    }
  }
  std::vector<uint32_t> take() {
    in_last_ = 0;
    return std::exchange(checksums_, {});
  }

 private:
  uint64_t block_bytes_;
  std::vector<uint32_t> checksums_;
  uint64_t in_last_ = 0;  // bytes of the last block so far; 0: it is full
};

}  // namespace meron::checkpoint
