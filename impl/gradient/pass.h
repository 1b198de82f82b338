// SPDX-License-Identifier: Apache-2.0
// What one reduction sums, and between whom.
#pragma once

#include <cstdint>

#include "unit/unit.h"

namespace meron {

struct ReduceOptions {
  bool mean = true;
  bool boundary = true;
  double divisor = 1.0;

  // What a complete sum over `members` ranks is multiplied by.
  float scale(int members) const {
    return static_cast<float>(1.0 / (divisor * (mean ? static_cast<double>(members) : 1.0)));
  }
};

// Whether a micro-batch stays on the rank: whole gradients accumulate without communication.
inline bool stays_local(const Unit& unit, const ReduceOptions& options) {
  return !is_sharded(unit.rank().plan.gradient) && !options.boundary;
}

// Whether replicas exchange what a reduction sums: each time where gradients are cut over them,
// else when the accumulation ends.
inline bool between_replicas(const Unit& unit, const ReduceOptions& options) {
  if (!unit.axes().replicas()) return false;
  return options.boundary || unit.rank().plan.gradient.sharding == Sharding::world;
}

// Whether sums over the shard axis are apart from what is accumulated, which is what this rank owns
// among the replicas then.
inline bool sums_apart(const Unit& unit) {
  return unit.axes().replicas() && unit.rank().plan.gradient.sharding == Sharding::world;
}

// Whether what replicas exchange lies elsewhere: the bucket is free once rows are summed.
inline bool rows_leave_bucket(const Unit& unit) {
  const Row& gradient = unit.rank().plan.gradient;
  return gradient.sharding == Sharding::shard && gradient.codec.kind == CodecKind::none;
}

struct Pass {
  ReduceOptions options;
  bool ends = false;        // nothing was added: what was summed before is exchanged
  bool between = false;     // replicas exchange
  bool direct = false;      // and what they exchange is buckets, which nothing was added to
  bool shares = false;      // all who need this rank's sums have them in its memory only
  bool accumulate = false;  // the sum holds earlier micro-batches

  // Of a unit's next reduction.
  static Pass of(const Unit& unit, const ReduceOptions& options, bool ends);
};

}  // namespace meron
