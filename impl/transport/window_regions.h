// SPDX-License-Identifier: Apache-2.0
// Allocation of ranges of the shared segment. Every rank keeps its own account. All accounts are
// equal because the ranks of a group make the same calls in the same order with the same sizes.
// Accounts of groups are independent.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace meron {

// Groups, the world among them. Each other group gets this fraction of the world's remaining part
// of the segment, so the last group still has an eighth of the size of the first.
inline constexpr uint32_t kMaxGroups = 64;
inline constexpr uint64_t kShareOfGroup = 32;

class WindowRegions {
 public:
  // The world's region: [begin, end).
  WindowRegions(uint64_t begin, uint64_t end) : window_(end) { regions_[0] = {begin, end}; }

  // Gives a group a region, by its number; 0 is the world, which has the rest. All ranks of the
  // world call it in the same order.
  void open(uint32_t group);
  // The offset of `bytes` of a group's region.
  Result<uint64_t> allocate(uint64_t bytes, std::string_view what, uint32_t group);
  // Releases a range that no rank reads or writes any more. It is allocated again after recycle(),
  // which all ranks of the group call at the same place of their calls, and only when all of them
  // have cleared what they had there.
  void free(uint64_t offset, uint64_t bytes, uint32_t group);
  void recycle(uint32_t group);

 private:
  struct Region {
    uint64_t next = 0, end = 0;                                // never allocated so far
    std::map<uint64_t, uint64_t> free = {};                    // begin -> end; never adjacent
    std::vector<std::pair<uint64_t, uint64_t>> released = {};  // begin, end; until recycle()
  };
  const uint64_t window_;  // bytes
  std::array<Region, kMaxGroups> regions_{};
};

}  // namespace meron
