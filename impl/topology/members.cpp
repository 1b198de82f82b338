// SPDX-License-Identifier: Apache-2.0
#include "topology/members.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

namespace meron {

Members::Members(std::vector<int> ranks, int self) : ranks_(std::move(ranks)) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i] == self) index_ = static_cast<int>(i);
  }
}

Members Members::world(int world_size, int self) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {std::move(ranks), self};
}

Result<Members> Members::of(std::span<const int> ranks, int world_size, int self) {
  if (ranks.empty()) {
    return Error(MERON_E_ARGUMENT, "a group needs at least one rank", "pass one or more ranks");
  }
  std::vector<bool> seen(static_cast<size_t>(world_size), false);
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_size) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("rank {} is beyond a world of {}", rank, world_size),
                   fmt::format("use ranks from 0 to {}", world_size - 1));
    }
    if (seen[static_cast<size_t>(rank)]) {
      return Error(MERON_E_ARGUMENT, fmt::format("rank {} is given twice", rank),
                   "give each rank once");
    }
    seen[static_cast<size_t>(rank)] = true;
  }
  return Members(std::vector<int>(ranks.begin(), ranks.end()), self);
}

}  // namespace meron
