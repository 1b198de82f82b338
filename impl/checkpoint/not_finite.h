// SPDX-License-Identifier: Apache-2.0
// NaNs and infinities in the files of a checkpoint: allowed, and counted. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace meron::checkpoint {

struct NotFinite {
  uint64_t nans = 0;
  uint64_t infinities = 0;

  uint64_t count() const { return nans + infinities; }
};

// Of `count` little-endian elements; none of a dtype that has neither.
NotFinite count_not_finite(std::string_view dtype, const std::byte* data, uint64_t count);

// Counts by tensor while a file is read in order, in pieces of any length.
class NotFiniteByTensor {
 public:
  // `manifest` must stay.
  explicit NotFiniteByTensor(const Manifest& manifest);

  // The next bytes of a file; each file from its begin, or after a gap.
  void take(uint32_t file, uint64_t offset, const std::byte* data, uint64_t bytes);
  // By index in Manifest::tensors.
  const std::vector<NotFinite>& counts() const { return counts_; }

 private:
  struct Part {
    uint64_t begin, end;  // bytes of the file
    uint32_t tensor;
    uint32_t width;  // of an element
  };

  const Manifest& manifest_;
  std::vector<std::vector<Part>> parts_;  // by file, ascending
  std::vector<NotFinite> counts_;
  // The begin of an element that ends in the next bytes.
  std::vector<std::byte> torn_;
  uint64_t torn_at_ = 0;
};

}  // namespace meron::checkpoint
