// SPDX-License-Identifier: Apache-2.0
// The options of one reduction, and the exchanges that follow from them.
#pragma once

#include <cstdint>

#include "unit/unit.h"

namespace meron {

struct ReduceOptions {
  bool mean = true;
  bool boundary = true;
  double divisor = 1.0;

  // Factor that is applied to a complete sum over `members` ranks.
  float scale(int members) const {
    return static_cast<float>(1.0 / (divisor * (mean ? static_cast<double>(members) : 1.0)));
  }
};

// True if a micro-batch stays on the rank. Full gradients accumulate without communication.
inline bool stays_local(const Unit& unit, const ReduceOptions& options) {
  return !is_sharded(unit.rank().plan.gradient) && !options.boundary;
}

// True if replicas take part in a reduction: in each one if gradients are sharded over replicas,
// else at the accumulation boundary.
inline bool between_replicas(const Unit& unit, const ReduceOptions& options) {
  if (!unit.axes().replicas()) return false;
  return options.boundary || unit.rank().plan.gradient.sharding == Sharding::world;
}

// True if the sums over the shard axis have a buffer of their own. The accumulated sum then covers
// only this rank's part among the replicas.
inline bool sums_apart(const Unit& unit) {
  return unit.axes().replicas() && unit.rank().plan.gradient.sharding == Sharding::world;
}

// True if replicas exchange sums that are outside the bucket, so that it is free once rows are
// summed.
inline bool rows_leave_bucket(const Unit& unit) {
  const Row& gradient = unit.rank().plan.gradient;
  return gradient.sharding == Sharding::shard && gradient.codec.kind == CodecKind::none;
}

struct Pass {
  ReduceOptions options;
  bool ends = false;        // nothing was added: exchanges the earlier sums
  bool between = false;     // replicas exchange
  bool direct = false;      // replicas exchange buckets instead of f32 sums
  bool shares = false;      // other ranks need this rank's sums
  bool accumulate = false;  // the sum holds earlier micro-batches

  // Returns the pass of a unit's next reduction.
  static Pass of(const Unit& unit, const ReduceOptions& options, bool ends);
};

}  // namespace meron
