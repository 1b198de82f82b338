// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/layout.h"
#include "plan/predict_flat.h"
#include "plan/state_layout.h"
#include "plan/value_layout.h"

namespace meron {
namespace {

constexpr uint32_t kMaxMicroBatches = 1u << 20;
constexpr uint32_t kMaxGathers = 1u << 10;

struct StoredUnit {
  const std::vector<FlatDesc>* flats;
  bool stored;         // on the tier of the plan's param entry
  uint64_t count = 1;  // of units like this one
};

using FlatKind = std::tuple<DType, uint64_t, bool, bool>;

FlatKind kind_of(const FlatDesc& flat, bool stored) {
  return {flat.dtype, flat.elements, flat.trainable, stored};
}

// One unit for all that are made of equal flats: a model has few kinds of layers, and many of each.
using UnitKinds = std::vector<StoredUnit>;

UnitKinds kinds_of(const std::vector<StoredUnit>& all) {
  std::map<std::vector<FlatKind>, StoredUnit> kinds;
  for (const StoredUnit& unit : all) {
    std::vector<FlatKind> kind;
    for (const FlatDesc& flat : *unit.flats) kind.push_back(kind_of(flat, unit.stored));
    const auto [found, fresh] = kinds.try_emplace(std::move(kind), unit);
    if (!fresh) ++found->second.count;
  }
  UnitKinds units;
  for (const auto& [kind, unit] : kinds) units.push_back(unit);
  return units;
}

// The ring that every unit's gradients pass through holds the largest unit.
Wide ring_bytes(const Plan& plan, const UnitKinds& units, uint64_t rank, const MeshShape& mesh) {
  if (!is_sharded(plan.gradient) || plan.gradient.tier == Tier::device) return 0;
  Wide largest = 0;
  for (const auto& [flats, stored, count] : units) {
    Wide bytes = exchange_bytes(plan, *flats, rank, mesh);
    for (const FlatDesc& flat : *flats) {
      if (!flat.trainable) continue;
      bytes += round_up(flat.elements * size_of(gradient_dtype(plan, flat.dtype)), kPage);
    }
    largest = std::max(largest, bytes);
  }
  // footprint() in 128 bits would differ from this only for sums that are refused in the end.
  constexpr Wide kRefused = Wide{1} << 63;
  if (largest >= kRefused) return Wide{1} << 64;
  return Wide{plan.gradient.buckets} * footprint(static_cast<uint64_t>(largest));
}

// The buffers of states on nvme: each holds the largest sub-group.
Wide state_buffer_bytes(const Plan& plan, const UnitKinds& units, uint32_t states, uint64_t rank,
                        const MeshShape& mesh) {
  uint64_t largest = 0;
  for (const auto& [flats, stored, count] : units) {
    for (const FlatDesc& flat : *flats) {
      if (!flat.trainable) continue;
      const Range owned = held_range(plan.optimizer, flat.elements, rank, mesh);
      const StateShape shape = state_shape(plan, flat, states);
      largest = std::max(largest, largest_sub_group(shape, plan.optimizer.sub_group,
                                                    split_states(plan, shape, owned).nvme.size()));
    }
  }
  return footprint(state_buffers_bytes(plan, largest));
}

// Memory for parameters on nvme: the largest units, as many as may be in memory at a time. `local`:
// ranks of the shard axis that share this rank's memory. A unit that this rank has released stays
// until they have released it too, while the next one is gathered.
Wide param_buffer_bytes(const Plan& plan, const UnitKinds& units, uint64_t rank,
                        const MeshShape& mesh, uint64_t local) {
  std::vector<std::pair<Wide, uint64_t>> sizes;  // of a unit, and how many units have it
  for (const auto& [flats, stored, count] : units) {
    if (!stored) continue;
    Wide bytes = 0;
    for (const FlatDesc& flat : *flats) {
      if (!stored_away(plan, flat)) continue;
      bytes += Wide{held_range(plan.param, flat.elements, rank, mesh).size()} * size_of(flat.dtype);
    }
    sizes.emplace_back(bytes, count);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  Wide sum = 0;
  uint64_t room = std::max<uint64_t>(plan.param.buffers, local > 1 ? 2 : 1);
  for (const auto& [bytes, count] : sizes) {
    const uint64_t held = std::min(room, count);
    sum += bytes * held;
    room -= held;
  }
  return sum;
}

bool fits(Wide value) {
  return value <= UINT64_MAX;
}

Result<RankPrediction> narrow(const Tally& tally) {
  Wide memory = 0;
  for (size_t figure = kParam; figure <= kParamBuffers; ++figure) memory += tally[figure];
  if (!fits(memory) || !std::all_of(tally.begin(), tally.end(), fits)) {
    return Error(MERON_E_ARGUMENT, "the prediction has more bytes than 64 bits can count",
                 "check the model's sizes and the workload")
        .on("plan");
  }
  const auto get = [&](Figure figure) { return static_cast<uint64_t>(tally[figure]); };
  return RankPrediction{.memory = {.param = get(kParam),
                                   .secondary_partition = get(kSecondaryPartition),
                                   .gradient_buckets = get(kBuckets),
                                   .reduced_gradient = get(kReduced),
                                   .feedback = get(kFeedback),
                                   .moments = get(kMoments),
                                   .master = get(kMaster),
                                   .state_buffers = get(kStateBuffers),
                                   .param_buffers = get(kParamBuffers)},
                        .links = {.gather_mapped = get(kMapped),
                                  .gather_copied = get(kCopied),
                                  .reduce = get(kReduce),
                                  .inter_node_gather = get(kInterNodeGather),
                                  .inter_node_reduce = get(kInterNodeReduce)},
                        .nvme = {.optimizer = get(kNvmeOptimizer),
                                 .param = get(kNvmeParam),
                                 .read = get(kNvmeRead),
                                 .written = get(kNvmeWritten)},
                        .device = {.param = get(kDeviceParam),
                                   .gradient = get(kDeviceGradient),
                                   .optimizer = get(kDeviceOptimizer)}};
}

Status check_workload(const Workload& load) {
  struct Limit {
    const char* name;
    uint32_t value;
    uint32_t max;
    uint32_t min = 1;
  };
  for (const Limit& limit :
       {Limit{"ranks", load.ranks, kMaxPlanRanks},
        Limit{"micro_batches", load.micro_batches, kMaxMicroBatches},
        Limit{"gathers_per_micro_batch", load.gathers_per_micro_batch, kMaxGathers},
        Limit{"ranks_per_node", std::max(load.node, 1u), kMaxPlanRanks},
        Limit{"optimizer_states", load.optimizer_states, kMaxStates, 0}}) {
    if (limit.value >= limit.min && limit.value <= limit.max) continue;
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} is {}, outside {} to {}", limit.name, limit.value, limit.min,
                             limit.max),
                 fmt::format("give another number of {}", limit.name))
        .on("workload");
  }
  return Ok{};
}

}  // namespace

uint64_t encoded_row_room(const Codec& codec, uint64_t shard, uint64_t replicas) {
  const uint64_t sub_shard = shard_elements(shard, replicas);
  if (sub_shard == 0) return 0;
  return shard / sub_shard * room_bytes(codec, sub_shard, sizeof(float)) +
         room_bytes(codec, shard % sub_shard, sizeof(float));
}

bool param_coded(const Plan& plan, const FlatDesc& flat, const MeshShape& mesh) {
  if (mesh.replicas == 1 || (plan.param.frozen_int8 && !flat.trainable)) return false;
  return plan.param.codec.blocked() || (plan.param.codec.narrows() && flat.dtype == DType::f32);
}

uint64_t exchange_bytes(const Plan& plan, const std::vector<FlatDesc>& flats, uint64_t rank,
                        const MeshShape& mesh) {
  if (mesh.replicas == 1) return 0;
  const bool world_gradient = plan.gradient.sharding == Sharding::world;
  const bool world_optimizer = plan.optimizer.sharding == Sharding::world;
  const Codec& codec = plan.gradient.codec;
  uint64_t bytes = 0;
  for (const FlatDesc& flat : flats) {
    if (!flat.trainable) continue;
    const uint64_t shard = row_range(flat.elements, rank, mesh).size();
    if (world_gradient) bytes += round_up(shard * sizeof(float), kPage);
    if (codec.kind == CodecKind::none) continue;
    bytes += round_up(encoded_row_room(codec, shard, mesh.replicas), kPage);
    if (world_optimizer) continue;
    const uint64_t sub_shard = part_range(flat.elements, rank, mesh).size();
    bytes += round_up(room_bytes(codec, sub_shard, sizeof(float)), kPage);
  }
  return bytes;
}

NvmeTime nvme_time(const Prediction& prediction) {
  const NvmeRates& rates = prediction.plan.nvme.rates;
  if (!rates.known()) return {};
  const Workload& load = prediction.workload;
  const double node = load.node == 0 ? load.ranks : std::min(load.node, load.ranks);
  NvmeTime most;
  for (const RankPrediction& rank : prediction.ranks) {
    const auto over = [&](uint64_t bytes, uint64_t rate) {
      return node * static_cast<double>(bytes) / static_cast<double>(rate);
    };
    most.states = std::max(most.states, over(rank.nvme.optimizer, rates.both));
    most.values =
        std::max(most.values, over(rank.nvme.read - rank.nvme.optimizer, rates.read) +
                                  over(rank.nvme.written - rank.nvme.optimizer, rates.write));
  }
  const Plan& plan = prediction.plan;
  const uint64_t cut = plan.optimizer.sharding == Sharding::none    ? 1
                       : plan.optimizer.sharding == Sharding::shard ? prediction.mesh.shards
                                                                    : prediction.mesh.ranks();
  most.update = node * static_cast<double>(prediction.trainable_elements) /
                static_cast<double>(cut) / static_cast<double>(rates.update);
  return most;
}

Result<Prediction> predict(const Plan& plan, const ModelDesc& model, const Workload& workload) {
  MERON_TRY(validate(plan));
  MERON_TRY(check_workload(workload));
  const uint32_t node = workload.node == 0 ? workload.ranks : workload.node;
  MERON_ASSIGN(const MeshShape mesh, mesh_shape(plan, workload.ranks, node));

  Prediction out{.plan = plan, .workload = workload, .mesh = mesh, .units = model.units.size()};
  std::vector<Tally> ranks(workload.ranks);
  // A model has few kinds of flats, and many of each.
  std::map<FlatKind, uint64_t> kinds;
  std::vector<StoredUnit> stored_units;
  Residency residency(plan);
  for (const UnitDesc& unit : model.units) {
    const bool stored = residency.store(unit.flats, mesh);
    stored_units.push_back({&unit.flats, stored});
    for (const FlatDesc& flat : unit.flats) {
      if (flat.elements > kMaxElements) {
        return Error(MERON_E_ARGUMENT,
                     fmt::format("a flat has {} elements, more than the limit of {}", flat.elements,
                                 kMaxElements),
                     "check the shapes: no memory holds that many")
            .on(unit.name);
      }
      // If this sum overflows, the total of the bytes does too and is refused below.
      out.elements += flat.elements;
      if (flat.trainable) out.trainable_elements += flat.elements;
      ++kinds[kind_of(flat, stored)];
    }
  }
  std::vector<Tally> costs(workload.ranks);
  for (const auto& [kind, count] : kinds) {
    const auto& [dtype, elements, trainable, stored] = kind;
    std::fill(costs.begin(), costs.end(), Tally());
    add_cost({dtype, elements, trainable}, stored, plan, workload, mesh, costs);
    for (uint32_t r = 0; r < workload.ranks; ++r) {
      for (size_t figure = 0; figure < kFigures; ++figure) {
        ranks[r][figure] += costs[r][figure] * count;
      }
    }
  }

  Tally total;
  out.ranks.reserve(workload.ranks);
  const UnitKinds units = kinds_of(stored_units);
  // By position on the shard axis. Only where replicas encode their sums do they differ.
  std::map<uint64_t, Wide> rings;
  const bool by_rank =
      plan.gradient.codec.kind != CodecKind::none && plan.optimizer.sharding != Sharding::world;
  for (uint32_t r = 0; r < workload.ranks; ++r) {
    const uint64_t like = mesh.replicas == 1 ? 0 : by_rank ? r : r % mesh.shards;
    const auto [ring, fresh] = rings.try_emplace(like);
    if (fresh) ring->second = ring_bytes(plan, units, r, mesh);
    ranks[r][kBuckets] += ring->second;
    if (plan.optimizer.tier == Tier::nvme) {
      ranks[r][kStateBuffers] +=
          state_buffer_bytes(plan, units, workload.optimizer_states, r, mesh);
    }
    if (plan.param.tier == Tier::nvme) {
      ranks[r][kParamBuffers] +=
          param_buffer_bytes(plan, units, r, mesh, std::min<uint64_t>(node, mesh.shards));
    }
    total += ranks[r];
    MERON_ASSIGN(const RankPrediction narrowed, narrow(ranks[r]));
    out.ranks.push_back(narrowed);
    out.peak_host = std::max(out.peak_host, narrowed.memory.total());
  }
  MERON_ASSIGN(out.total, narrow(total));
  return out;
}

}  // namespace meron
