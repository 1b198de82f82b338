// SPDX-License-Identifier: Apache-2.0
// The ranks of a group, in its order. Pure.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"

namespace meron {

class Members {
 public:
  // All ranks of a world, in order.
  static Members world(int world_size, int self);
  // Some ranks of a world, each once. `self` need not be among them.
  static Result<Members> of(std::span<const int> ranks, int world_size, int self);

  int size() const { return static_cast<int>(ranks_.size()); }
  // This rank's place, or MERON_RANK_NONE.
  int index() const { return index_; }
  int world_rank(int index) const { return ranks_[static_cast<size_t>(index)]; }
  std::span<const int> ranks() const { return ranks_; }

 private:
  Members(std::vector<int> ranks, int self);

  std::vector<int> ranks_;
  int index_ = MERON_RANK_NONE;
};

}  // namespace meron
