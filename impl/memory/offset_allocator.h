// SPDX-License-Identifier: Apache-2.0
// Hands out ranges of [0, capacity): pure bookkeeping without memory, so that ranks that make the
// same calls in the same order get the same offsets without talking to each other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace meron {

class OffsetAllocator {
 public:
  explicit OffsetAllocator(uint64_t capacity);

  // The start of a free range of `bytes` (more than 0) at a multiple of `align` (a power of two):
  // in the smallest free range that fits, the lowest of equals. Nothing when none fits.
  std::optional<uint64_t> allocate(uint64_t bytes, uint64_t align = 1);

  // Frees the range that allocate() returned as `offset`. False if there is none.
  bool free(uint64_t offset);

  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }
  uint64_t available() const { return capacity_ - used_; }
  uint64_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  void add_free(uint64_t begin, uint64_t end);
  void remove_free(uint64_t begin, uint64_t end);

  uint64_t capacity_;
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> live_;                // begin -> end
  std::map<uint64_t, uint64_t> free_;                // begin -> end; never empty nor adjacent
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (size, begin) of each free range
};

}  // namespace meron
