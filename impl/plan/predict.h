// SPDX-License-Identifier: Apache-2.0
// What a plan will cost, to the byte: memory per rank, and bytes moved per rank and optimizer step.
// The engine counts the same quantities, and a test holds both equal.
//
// In the comments below: a flat of n elements of `size` bytes over N ranks, of which this rank owns
// `own`; its gradient has elements of `gsize` bytes; `owned` = own if the optimizer is sharded, n
// otherwise; F = footprint() of base/layout.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/model_desc.h"
#include "plan/plan.h"

namespace meron {

inline constexpr uint32_t kMaxPlanRanks = 65'536;

struct Workload {
  uint32_t ranks = 1;
  uint32_t micro_batches = 1;            // per optimizer step
  uint32_t gathers_per_micro_batch = 2;  // of each unit: forward and backward

  bool operator==(const Workload&) const = default;
};

// Bytes of one rank in tier host while it trains. Nothing comes and goes within a step, so the sum
// is the peak. What the engine needs to run itself (queues, control blocks) is counted apart.
struct MemoryPrediction {
  // Sharded: own * size in the node's window. Otherwise F(n * size).
  uint64_t param = 0;
  // Not sharded: F(n * gsize) per flat. Sharded: the ring, each buffer
  // F(max over units of the sum over the unit's flats of n * gsize rounded up to a page).
  uint64_t gradient_buckets = 0;
  // The f32 sum that the optimizer reads: F(4 * owned); 0 if it reuses the bucket, which it does
  // when gradients are f32 and not sharded.
  uint64_t reduced_gradient = 0;
  uint64_t moments = 0;  // two of F(4 * owned)
  uint64_t master = 0;   // F(4 * owned) for 16-bit parameters

  uint64_t gradient() const { return gradient_buckets + reduced_gradient; }
  uint64_t optimizer() const { return moments + master; }
  uint64_t total() const { return param + gradient() + optimizer(); }

  bool operator==(const MemoryPrediction&) const = default;
};

// Bytes that one rank takes from its peers over the link "shm" (host memory) in one optimizer step.
struct LinkPrediction {
  // Sharded parameters become visible in place: (n - own) * size per gather, nothing is copied.
  uint64_t gather_mapped = 0;
  // Whole parameters, sharded optimizer: (n - own) * size once a step, from the updated shards.
  uint64_t gather_copied = 0;
  // Read from the peers' buckets: (N - 1) * own * gsize per reduction, of which there is one per
  // micro-batch if gradients are sharded, else one per step. An optimizer that is not sharded also
  // reads the others' sums: (n - own) * 4.
  uint64_t reduce = 0;

  bool operator==(const LinkPrediction&) const = default;
};

struct RankPrediction {
  MemoryPrediction memory;
  LinkPrediction links;

  bool operator==(const RankPrediction&) const = default;
};

struct Prediction {
  Plan plan;
  Workload workload;
  uint64_t units = 0;
  uint64_t elements = 0;            // of all flats, with padding
  uint64_t trainable_elements = 0;  // with padding
  std::vector<RankPrediction> ranks = {};
  RankPrediction total = {};  // summed over the ranks
  uint64_t peak_host = 0;     // of the rank with the most

  bool operator==(const Prediction&) const = default;
};

// Refuses an invalid plan, a workload with a zero or more than kMaxPlanRanks ranks, and sizes whose
// bytes do not fit 64 bits.
Result<Prediction> predict(const Plan& plan, const ModelDesc& model, const Workload& workload);

// Each quantity as { "bytes": exact, "human": "1.5 GiB" }. indent < 0: one line.
std::string to_json(const Prediction& prediction, int indent = 2);

// A table of memory and one of links; neighbouring ranks whose figures print alike share a row.
std::string to_table(const Prediction& prediction);

}  // namespace meron
