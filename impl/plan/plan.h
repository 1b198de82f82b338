// SPDX-License-Identifier: Apache-2.0
// The plan: one entry per kind of state with its sharding, tier, dtype and wire codec. A stage or a
// strategy of other systems is one such table.
// A Plan is a value: pure data, comparable, printable (table.h), parsed (plan_json.h), and the
// input of the prediction (predict.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/result.h"
#include "plan/codec.h"

namespace meron {

// Ranks form a mesh, replica x shard: see MeshShape in base/layout.h.
enum class Sharding : uint8_t {
  none,   // replicated: every rank holds all elements
  shard,  // sharded over the shard axis, and replicated over the replica axis
  world,  // "replica x shard": each shard is cut into sub-shards, one per replica
};
// The home of a state between its uses. Tier device is the device that the rank computes on.
enum class Tier : uint8_t { host, nvme, device };
// How an optimizer stores its states: in f32, rounded to 16 bits, or in 8 bits with a scale per
// block. The master of 16-bit parameters is f32 in any case.
enum class StateDType : uint8_t { f32, bf16, int8 };

constexpr std::string_view name_of(Sharding value) {
  return value == Sharding::none ? "none" : value == Sharding::shard ? "shard" : "replica x shard";
}
constexpr std::string_view name_of(Tier value) {
  return value == Tier::host ? "host" : value == Tier::nvme ? "nvme" : "device";
}
constexpr std::string_view name_of(StateDType value) {
  return value == StateDType::f32 ? "f32" : value == StateDType::bf16 ? "bf16" : "int8";
}

// Fields of every entry of the plan.
struct Row {
  Sharding sharding = Sharding::none;
  Tier tier = Tier::host;
  Codec codec = {};  // between replicas; has no meaning for the optimizer

  bool operator==(const Row&) const = default;
};

// Parameters at rest, between gathers, in the dtype that they are registered in.
struct ParamRow : Row {
  // The secondary partition of hpZ (ZeRO++): from the first gather of a version to the update, each
  // rank keeps its full shard on this tier, so that later gathers stay on the shard axis.
  bool secondary_partition = false;
  bool frozen_int8 = false;  // frozen parameters are encoded at rest, by frozen_codec()
  // On the device, where devices exchange: the bytes of a window within which whole values are
  // gathered, 0: none; and whether the library of collectives registers the memory of shards.
  uint64_t gather_window = 0;
  bool register_values = false;
  // On nvme: how many elements a rank keeps in memory at all times, those of the first units of
  // each group; and how many other units may be in memory at a time because they change. (How many
  // are in memory because they are used is decided by the trainer or its schedule.)
  uint64_t resident = 0;
  uint32_t buffers = 5;

  bool operator==(const ParamRow&) const = default;
};

// Gradients as they are accumulated.
struct GradientRow : Row {
  // Of the bucket. Empty: that of the parameter; but see widens().
  std::optional<DType> dtype = {};
  uint32_t buckets = 2;  // where sharded: how many buffers the ring has
  bool rounds = false;   // without a dtype: micro-batches are added in the parameter's

  bool operator==(const GradientRow&) const = default;
};

// Moments and, for 16-bit parameters, the f32 master.
struct OptimizerRow : Row {
  StateDType dtype = StateDType::f32;
  // On nvme: the fraction of its states there; how many elements are read, updated and written
  // together (a sub-group); and for how many sub-groups there are buffers.
  double fraction = 1.0;
  uint64_t sub_group = 512 << 10;
  uint32_t buffers = 8;

  bool operator==(const OptimizerRow&) const = default;
};

// The number of ranks of the shard axis. Gradients are summed along it first, then between
// replicas, so a run's bits depend on it.
struct Mesh {
  static constexpr uint32_t kAll = 0;            // all ranks: there are no replicas
  static constexpr uint32_t kNode = UINT32_MAX;  // the ranks of a node; see resolve()
  uint32_t shard = kAll;

  bool operator==(const Mesh&) const = default;
};

inline constexpr uint32_t kMaxGradientBuckets = 64;
inline constexpr size_t kMaxPlanName = 64;  // bytes

// Measurements of a drive and its host by `meron io-bench`. 0: not known.
struct NvmeRates {
  uint64_t read = 0, write = 0;  // bytes a second
  uint64_t both = 0;             // each way, reading and writing equally much
  uint64_t update = 0;           // elements a second that AdamW updates in memory on all cores

  bool known() const { return read > 0 && write > 0 && both > 0 && update > 0; }
  bool operator==(const NvmeRates&) const = default;
};

// The folder of tier nvme, and the settings of its reads and writes (`aio` in DeepSpeed).
struct Nvme {
  static constexpr uint32_t kLeastBlock = 4096, kMostBlock = 1u << 26;
  static constexpr uint32_t kMostDepth = 4096, kMostThreads = 64;
  std::string path;          // of a folder on it; empty: no entry has the tier
  uint32_t block = 1 << 20;  // bytes per request, a multiple of 4096
  uint32_t depth = 32;       // requests in flight
  uint32_t threads = 1;      // if the kernel offers no asynchronous requests
  NvmeRates rates = {};      // all known, or none

  bool operator==(const Nvme&) const = default;
};

inline constexpr uint64_t kLeastSubGroup = 4096, kMostSubGroup = uint64_t{1} << 40;
inline constexpr uint32_t kLeastStateBuffers = 2, kMostStateBuffers = 1024;
inline constexpr uint32_t kLeastParamBuffers = 1, kMostParamBuffers = 1024;
inline constexpr size_t kMaxNvmePath = 4095;                      // bytes
inline constexpr uint64_t kMostGatherWindow = uint64_t{1} << 50;  // bytes

struct Plan {
  std::string name = "zero0";
  Mesh mesh;
  ParamRow param;
  GradientRow gradient;
  OptimizerRow optimizer;
  Nvme nvme;

  bool operator==(const Plan&) const = default;
};

constexpr bool is_sharded(const Row& entry) {
  return entry.sharding != Sharding::none;
}
// True if the bucket of a parameter of dtype `param` becomes f32 with the second micro-batch of an
// accumulation. Sharded gradients add micro-batches to the f32 sums instead.
constexpr bool widens(const Plan& plan, DType param) {
  const GradientRow& gradient = plan.gradient;
  return param != DType::f32 && !gradient.dtype && !gradient.rounds && !is_sharded(gradient);
}
// The dtype of the bucket of a parameter of dtype `param`, after so many micro-batches.
constexpr DType gradient_dtype(const Plan& plan, DType param, uint32_t micro_batches = 1) {
  if (micro_batches > 1 && widens(plan, param)) return DType::f32;
  return plan.gradient.dtype.value_or(param);
}
// True if an entry is sharded over all ranks of a mesh.
constexpr bool over_all(const Row& entry, const MeshShape& mesh) {
  return entry.sharding == Sharding::world ||
         (entry.sharding == Sharding::shard && mesh.replicas == 1);
}
// True if a rank needs a device for the plan.
constexpr bool uses_device(const Plan& plan) {
  return plan.param.tier == Tier::device || plan.gradient.tier == Tier::device ||
         plan.optimizer.tier == Tier::device;
}
// The slice of a flat of `elements` that `rank` holds under an entry: all, its shard or sub-shard.
constexpr Range held_range(const Row& entry, uint64_t elements, uint64_t rank,
                           const MeshShape& mesh) {
  switch (entry.sharding) {
    case Sharding::none:
      break;
    case Sharding::shard:
      return row_range(elements, rank, mesh);
    case Sharding::world:
      return part_range(elements, rank, mesh);
  }
  return {0, elements};
}

inline constexpr std::array<std::string_view, 7> kPresetNames = {"zero0", "zero1", "zero2", "zero3",
                                                                 "mics",  "hpz",   "zeropp"};

// zero0 shards nothing, zero1 the optimizer, zero2 also the gradients, zero3 also the parameters.
// "mics(4)": zero3 within groups of 4 ranks, gradients synchronized between them at the
// accumulation boundary. "hpz": zero3 with a secondary partition of the parameters on each node.
// "zeropp": hpz with int8 parameters and int4 gradients between nodes. Their argument, the size of
// the shard axis, may be left out, or be "node": the ranks of a node.
Result<Plan> preset(std::string_view name);

// 1 to kMaxPlanName bytes of valid UTF-8 without control characters.
Status check_plan_name(std::string_view name);

// Refuses tables that contradict themselves or are not supported. Every function that takes a Plan
// expects a valid one; preset() and parse_plan() return valid plans.
Status validate(const Plan& plan);

// The mesh of `ranks` ranks, with `node_ranks` on each node (0: nodes differ in size, or are not
// known). An error names the numbers that do not fit.
Result<MeshShape> mesh_shape(const Plan& plan, uint32_t ranks, uint32_t node_ranks);

}  // namespace meron
