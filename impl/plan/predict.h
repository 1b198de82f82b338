// SPDX-License-Identifier: Apache-2.0
// What a plan will cost, to the byte: memory per rank, and bytes moved per rank and optimizer step.
// The engine counts the same quantities, and a test holds both equal.
//
// In the comments below: a flat of n elements of `size` bytes over a mesh of R replicas x s shards;
// a rank's `shard` and its `sub` (the sub-shard: its slice of the shard across the replicas);
// `held` = n, shard or sub, as the plan's sharding says;
// gradients have elements of `gsize` bytes, gradient_dtype() of the workload's micro-batches; F =
// footprint() of base/layout.h; wire(x) = wire_bytes() of plan/codec.h, 4 bytes for an element of a
// sum without a codec. Without a mesh R is 1, and sub and shard are the same. Remote ranks are
// those of other nodes.
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
  uint32_t node = 0;              // ranks that share memory, side by side; 0: all of them. 1: none
  uint32_t optimizer_states = 2;  // that the update rule keeps per parameter: 2 for Adam(W)

  bool operator==(const Workload&) const = default;
};

// Bytes of one rank in tier host while it trains. They are allocated for the whole step, so the sum
// is the peak on one node. Not counted: staging of values on their way between nodes, and what the
// engine needs to run itself (queues, control blocks).
struct MemoryPrediction {
  // Sharded: held * size in the node's shared segment, and with a codec of parameters F(sub * size)
  // for their exact values and F(wire(sub)) for the encoded ones. Not sharded: F(n * size).
  // Frozen ones under `frozen` int8: F(their encoding) instead. On nvme: 0; and on the device,
  // unless the host updates them.
  uint64_t param = 0;
  // hpZ's secondary partition: (shard - sub) * size of what remote ranks own and this one stages,
  // from a gather to the update that changes it. With a codec of differences it stays.
  uint64_t secondary_partition = 0;
  // Not sharded: F(n * gsize) per flat, or F(n * size) if it widens() and the sum of n elements is
  // the f32 bucket. Sharded: the ring, each buffer
  // F(max over units of the sum over the unit's flats of n * gsize rounded up to a page). With
  // replicas, room for what is exchanged between them: see exchange_bytes().
  uint64_t gradient_buckets = 0;
  // The f32 sum: F(4 * held) of the optimizer, or with replicas F(4 * sub) if gradients are sharded
  // over them and else F(4 * shard); 0 if it reuses the bucket, which it does when gradients are
  // f32 and not sharded, by their dtype and not by widens(); 0, as the ring, if the device sums.
  uint64_t reduced_gradient = 0;
  uint64_t feedback = 0;  // F(4 * shard) if the codec of gradients has feedback
  uint64_t moments = 0;   // per state F(codes and scales) of what is held on the host
  uint64_t master = 0;    // F(4 * those elements) for 16-bit parameters
  // Buffers of states on nvme: F(Plan::state_buffers times the largest sub-group).
  uint64_t state_buffers = 0;
  // Parameters on nvme are in memory while they are used, change or are written: held * size of the
  // largest units, Plan::param_buffers of them, and at least two if ranks share memory. An upper
  // bound if the trainer holds no more at a time, including units that a local peer has yet to
  // release. Exact if all units have one size, or all fit; else it depends on timing.
  uint64_t param_buffers = 0;

  uint64_t params() const { return param + secondary_partition + param_buffers; }
  uint64_t gradient() const { return gradient_buckets + reduced_gradient + feedback; }
  uint64_t optimizer() const { return moments + master + state_buffers; }
  uint64_t total() const { return params() + gradient() + optimizer(); }

  bool operator==(const MemoryPrediction&) const = default;
};

// Bytes that one rank receives from its peers in one optimizer step. The first step moves more:
// frozen values that are kept; and with a codec of differences all values in 16 bits.
struct LinkPrediction {
  // Sharded parameters that are read in place: per gather, what this rank neither holds nor
  // stages.
  uint64_t gather_mapped = 0;
  // Values that this rank copies or stages from other nodes. Per gather: its share of remote ranks'
  // parameters (with a secondary partition, those of its shard once a step, and frozen ones never
  // again). Once a step: updates by other ranks, if parameters are sharded over fewer ranks than
  // the optimizer.
  uint64_t gather_copied = 0;
  // Gradients read from peers: (s - 1) * shard * gsize per reduction. There is one reduction per
  // micro-batch if gradients are sharded, else one per step. With replicas (R - 1) * wire(sub)
  // between them, per reduction if gradients are sharded over them and else once a step; and, if
  // each replica needs the full shard, wire() of the others' sub-shards of the sums. An optimizer
  // that is not sharded also reads the others' sums: (n - sub) * 4.
  uint64_t reduce = 0;
  // Of these, bytes on the wire from remote ranks.
  uint64_t inter_node_gather = 0;
  uint64_t inter_node_reduce = 0;

  bool operator==(const LinkPrediction&) const = default;
};

// Bytes of one rank on tier nvme, and bytes that one optimizer step reads and writes there.
struct NvmePrediction {
  uint64_t optimizer = 0;  // see nvme_bytes() of plan/state_layout.h
  uint64_t param = 0;      // see value_file_bytes() of plan/value_layout.h
  // Parameters: held * size per gather, and once more where an update changes them in f32. At most:
  // what is still in memory is not read again.
  uint64_t read = 0;
  uint64_t written = 0;  // states, and held * size of trainable parameters

  uint64_t total() const { return optimizer + param; }

  bool operator==(const NvmePrediction&) const = default;
};

// Bytes of one rank that are on its device at all times, without the allocator's own. While it
// trains, unsharded values (from a gather to its release) and gradient buckets come on top.
struct DevicePrediction {
  uint64_t param = 0;      // device_value_bytes()
  uint64_t gradient = 0;   // the f32 sums: device_sum_bytes()
  uint64_t optimizer = 0;  // states, and 4 * held for 16-bit parameters

  uint64_t total() const { return param + gradient + optimizer; }

  bool operator==(const DevicePrediction&) const = default;
};

struct RankPrediction {
  MemoryPrediction memory;
  LinkPrediction links;
  NvmePrediction nvme;
  DevicePrediction device;

  bool operator==(const RankPrediction&) const = default;
};

// Bytes that one unit with these flats needs in a gradient bucket beside the gradients, on `rank`.
uint64_t exchange_bytes(const Plan& plan, const std::vector<FlatDesc>& flats, uint64_t rank,
                        const MeshShape& mesh);

// Room for a shard of sums whose sub-shards are encoded one by one for their owners.
uint64_t encoded_row_room(const Codec& codec, uint64_t shard, uint64_t replicas);

// True if replicas exchange a flat's values by the codec of parameters. Every rank then uses the
// decoded values, of its own sub-shard too, so that all ranks use the same values.
bool param_coded(const Plan& plan, const FlatDesc& flat, const MeshShape& mesh);

struct Prediction {
  Plan plan;
  Workload workload;
  MeshShape mesh;
  uint64_t units = 0;
  uint64_t elements = 0;            // of all flats, with padding
  uint64_t trainable_elements = 0;  // with padding
  std::vector<RankPrediction> ranks = {};
  RankPrediction total = {};  // summed over the ranks
  uint64_t peak_host = 0;     // of the rank with the most

  bool operator==(const Prediction&) const = default;
};

// Seconds that one optimizer step takes for states and parameters on nvme, by the rates of the
// plan: of a node, whose ranks share its drive and its cores.
struct NvmeTime {
  double states = 0.0;  // to be read and written
  double update = 0.0;  // of all trainable elements, including those in memory
  double values = 0.0;  // parameters on nvme to be read for gathers and updates, and written

  // Reading, updating and writing overlap. Values are read ahead, while the trainer computes.
  double step() const { return states > update ? states : update; }
};
NvmeTime nvme_time(const Prediction& prediction);

// Refuses an invalid plan, a mesh that does not fit the ranks, a workload with a zero or more than
// kMaxPlanRanks ranks, and sizes whose bytes do not fit 64 bits.
Result<Prediction> predict(const Plan& plan, const ModelDesc& model, const Workload& workload);

// Each quantity as { "bytes": exact, "human": "1.5 GiB" }. indent < 0: one line.
std::string to_json(const Prediction& prediction, int indent = 2);

// A table of memory and one of links; neighbouring ranks whose figures print alike share a line.
std::string to_table(const Prediction& prediction);

}  // namespace meron
