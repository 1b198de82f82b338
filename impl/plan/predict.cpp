// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/layout.h"

namespace meron {
namespace {

// Figures are summed in 128 bits and compared with 64 once, at the end. With the limits below the
// largest sum has 50 (bytes of a flat) + 30 (gathers) + 32 (flats) + 16 (ranks) bits: exact.
__extension__ using Wide = unsigned __int128;
constexpr uint32_t kMaxMicroBatches = 1u << 20;
constexpr uint32_t kMaxGathers = 1u << 10;

enum Figure : size_t {
  kParam,
  kBuckets,
  kReduced,
  kMoments,
  kMaster,
  kMapped,
  kCopied,
  kReduce,
  kFigures
};

struct Tally : std::array<Wide, kFigures> {
  Tally() : std::array<Wide, kFigures>{} {}
  Tally& operator+=(const Tally& other) {
    for (size_t i = 0; i < kFigures; ++i) (*this)[i] += other[i];
    return *this;
  }
  Tally& operator-=(const Tally& other) {
    for (size_t i = 0; i < kFigures; ++i) (*this)[i] -= other[i];
    return *this;
  }
};

// What one flat costs a rank that owns `own` of its elements.
Tally cost_of(const FlatDesc& flat, uint64_t own, const Plan& plan, const Workload& load) {
  const uint64_t n = flat.elements;
  const uint64_t size = size_of(flat.dtype);
  const bool param_sharded = is_sharded(plan.param);
  const bool gradient_sharded = is_sharded(plan.gradient);
  const bool optimizer_sharded = is_sharded(plan.optimizer);

  Tally cost;
  cost[kParam] = param_sharded ? own * size : footprint(n * size);
  if (param_sharded) {
    cost[kMapped] = Wide{load.gathers_per_micro_batch} * load.micro_batches * ((n - own) * size);
  }
  if (!flat.trainable) return cost;

  const uint64_t gsize = size_of(gradient_dtype(plan, flat.dtype));
  const uint64_t owned = optimizer_sharded ? own : n;
  if (!gradient_sharded) cost[kBuckets] = footprint(n * gsize);
  if (gradient_sharded || gsize != sizeof(float)) cost[kReduced] = footprint(owned * sizeof(float));
  cost[kMoments] = 2 * footprint(owned * sizeof(float));
  if (flat.dtype != DType::f32) cost[kMaster] = footprint(owned * sizeof(float));

  if (!param_sharded && optimizer_sharded) cost[kCopied] = (n - own) * size;
  const uint32_t reductions = gradient_sharded ? load.micro_batches : 1;
  cost[kReduce] = Wide{load.ranks - 1} * reductions * (own * gsize);
  if (!optimizer_sharded) cost[kReduce] += (n - own) * sizeof(float);
  return cost;
}

// Calls f(first, last, own) for each run of ranks [first, last) that own equally much of a flat of
// `elements`: those with a whole shard, one with the rest, those with nothing.
template <class F>
void for_each_run(uint64_t elements, uint32_t ranks, F f) {
  const uint64_t shard = shard_elements(elements, ranks);
  const uint32_t whole =
      shard == 0 ? 0 : static_cast<uint32_t>(std::min<uint64_t>(elements / shard, ranks));
  const uint32_t begun = std::min(whole + 1, ranks);
  if (whole > 0) f(0, whole, shard);
  if (begun > whole) f(whole, begun, shard_range(elements, whole, ranks).size());
  if (ranks > begun) f(begun, ranks, uint64_t{0});
}

// The ring that every unit's gradients pass through holds the largest unit.
Wide ring_bytes(const Plan& plan, const ModelDesc& model) {
  if (!is_sharded(plan.gradient)) return 0;
  Wide largest = 0;
  for (const UnitDesc& unit : model.units) {
    Wide bytes = 0;
    for (const FlatDesc& flat : unit.flats) {
      if (!flat.trainable) continue;
      bytes += round_up(flat.elements * size_of(gradient_dtype(plan, flat.dtype)), kPage);
    }
    largest = std::max(largest, bytes);
  }
  // footprint() in 128 bits would differ from this only for sums that are refused in the end.
  constexpr Wide kRefused = Wide{1} << 63;
  if (largest >= kRefused) return Wide{1} << 64;
  return Wide{plan.gradient_buckets} * footprint(static_cast<uint64_t>(largest));
}

bool fits(Wide value) {
  return value <= UINT64_MAX;
}

Result<RankPrediction> narrow(const Tally& tally) {
  const Wide memory =
      tally[kParam] + tally[kBuckets] + tally[kReduced] + tally[kMoments] + tally[kMaster];
  if (!fits(memory) || !std::all_of(tally.begin(), tally.end(), fits)) {
    return Error(MERON_E_ARGUMENT, "the prediction has more bytes than 64 bits can count",
                 "check the model's sizes and the workload")
        .on("plan");
  }
  const auto get = [&](Figure figure) { return static_cast<uint64_t>(tally[figure]); };
  return RankPrediction{
      .memory = {.param = get(kParam),
                 .gradient_buckets = get(kBuckets),
                 .reduced_gradient = get(kReduced),
                 .moments = get(kMoments),
                 .master = get(kMaster)},
      .links = {
          .gather_mapped = get(kMapped), .gather_copied = get(kCopied), .reduce = get(kReduce)}};
}

Status check_workload(const Workload& load) {
  struct Limit {
    const char* name;
    uint32_t value;
    uint32_t max;
  };
  for (const Limit& limit :
       {Limit{"ranks", load.ranks, kMaxPlanRanks},
        Limit{"micro_batches", load.micro_batches, kMaxMicroBatches},
        Limit{"gathers_per_micro_batch", load.gathers_per_micro_batch, kMaxGathers}}) {
    if (limit.value >= 1 && limit.value <= limit.max) continue;
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} is {}, outside 1 to {}", limit.name, limit.value, limit.max),
                 fmt::format("give another number of {}", limit.name))
        .on("workload");
  }
  return Ok{};
}

}  // namespace

Result<Prediction> predict(const Plan& plan, const ModelDesc& model, const Workload& workload) {
  MERON_TRY(validate(plan));
  MERON_TRY(check_workload(workload));

  Prediction out{.plan = plan, .workload = workload, .units = model.units.size()};
  // Ranks with equal cost are neighbours: changes[r] is by how much rank r differs from rank r - 1
  // (modulo 2^128, which the running sum undoes).
  std::vector<Tally> changes(workload.ranks + size_t{1});
  for (const UnitDesc& unit : model.units) {
    for (const FlatDesc& flat : unit.flats) {
      if (flat.elements > kMaxElements) {
        return Error(MERON_E_ARGUMENT,
                     fmt::format("a flat has {} elements, more than the limit of {}", flat.elements,
                                 kMaxElements),
                     "check the shapes: no memory holds that many")
            .on(unit.name);
      }
      // Where this sum overflows, the total of the bytes does too and is refused below.
      out.elements += flat.elements;
      if (flat.trainable) out.trainable_elements += flat.elements;
      for_each_run(flat.elements, workload.ranks, [&](uint32_t first, uint32_t last, uint64_t own) {
        const Tally cost = cost_of(flat, own, plan, workload);
        changes[first] += cost;
        changes[last] -= cost;
      });
    }
  }

  Tally rank, total;
  rank[kBuckets] = ring_bytes(plan, model);
  out.ranks.reserve(workload.ranks);
  for (uint32_t r = 0; r < workload.ranks; ++r) {
    rank += changes[r];
    total += rank;
    MERON_ASSIGN(const RankPrediction narrowed, narrow(rank));
    out.ranks.push_back(narrowed);
    out.peak_host = std::max(out.peak_host, narrowed.memory.total());
  }
  MERON_ASSIGN(out.total, narrow(total));
  return out;
}

}  // namespace meron
