// SPDX-License-Identifier: Apache-2.0
#include "memory/offset_allocator.h"

#include <iterator>
#include <new>

namespace meron {

OffsetAllocator::OffsetAllocator(uint64_t capacity) : capacity_(capacity) {
  if (capacity > 0) add_free(0, capacity);
}

std::optional<uint64_t> OffsetAllocator::allocate(uint64_t bytes, uint64_t align) {
  if (bytes == 0 || align == 0 || (align & (align - 1)) != 0) return {};
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const uint64_t begin = it->second;
    const uint64_t end = begin + it->first;
    const uint64_t padding = (align - begin % align) % align;
    if (padding > end - begin - bytes) continue;
    const uint64_t start = begin + padding;
    remove_free(begin, end);
    if (padding > 0) add_free(begin, start);
    if (start + bytes < end) add_free(start + bytes, end);
    live_.emplace(start, start + bytes);
    used_ += bytes;
    return start;
  }
  return {};
}

bool OffsetAllocator::free(uint64_t offset) {
  const auto live = live_.find(offset);
  if (live == live_.end()) return false;
  uint64_t begin = live->first;
  uint64_t end = live->second;
  live_.erase(live);
  used_ -= end - begin;
  // Grow by the free neighbours.
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    if (const auto [left, left_end] = *std::prev(next); left_end == begin) {
      remove_free(left, left_end);
      begin = left;
    }
  }
  if (const auto right = free_.find(end); right != free_.end()) {
    const auto [right_begin, right_end] = *right;
    remove_free(right_begin, right_end);
    end = right_end;
  }
  try {
    add_free(begin, end);
  } catch (const std::bad_alloc&) {
    // Destructors free ranges. One that cannot be noted is not used again.
  }
  return true;
}

void OffsetAllocator::add_free(uint64_t begin, uint64_t end) {
  free_.emplace(begin, end);
  by_size_.emplace(end - begin, begin);
}

void OffsetAllocator::remove_free(uint64_t begin, uint64_t end) {
  free_.erase(begin);
  by_size_.erase({end - begin, begin});
}

}  // namespace meron
