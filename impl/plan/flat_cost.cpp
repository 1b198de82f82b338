// SPDX-License-Identifier: Apache-2.0
#include "plan/flat_cost.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/state_layout.h"
#include "plan/value_layout.h"

namespace meron {
namespace {

// Of one row: its parts by replica, and what a replica brings in from those of other nodes.
struct RowCost {
  std::vector<uint64_t> parts;       // elements, by replica
  std::vector<Wide> far_parts;       // elements of far replicas' parts that it brings in
  std::vector<Wide> far_param_wire;  // the same as they travel
  std::vector<Wide> all_far_wire;    // of all far replicas' parts
  std::vector<Wide> far_sum_wire;    // of the sums of all far replicas' parts
  std::vector<Wide> other_sum_wire;  // of the sums of all other replicas' parts
  uint64_t far_replicas_of(uint64_t near) const { return parts.size() - near; }
};

class FlatCost {
 public:
  FlatCost(const FlatDesc& flat, bool stored, const Plan& plan, const Workload& load,
           const MeshShape& mesh)
      : flat_(flat),
        stored_(stored && stored_away(plan, flat)),
        plan_(plan),
        load_(load),
        mesh_(mesh),
        node_(load.node == 0 ? load.ranks : std::min(load.node, load.ranks)),
        size_(size_of(flat.dtype)) {}

  Tally of(uint64_t rank) {
    rank_ = rank;
    row_ = row_range(flat_.elements, rank, mesh_).size();
    replica_ = rank / mesh_.shards;
    row_cost_ = &row_cost(row_);
    part_ = row_cost_->parts[replica_];
    Tally cost;
    add_params(cost);
    if (flat_.trainable) add_gradients(cost);
    return cost;
  }

 private:
  bool replicas() const { return mesh_.replicas > 1; }
  // Replicas on this rank's node. The mesh fits the nodes: mesh_shape().
  uint64_t near_replicas() const {
    return std::max<uint64_t>(1, std::min(node_ / mesh_.shards, mesh_.replicas));
  }
  uint64_t near_shards() const { return std::min(node_, mesh_.shards); }

  // The wire format of parameters: a codec where it has one that changes something.
  uint64_t param_wire(uint64_t elements) const {
    if (!flat_.trainable && plan_.frozen_int8) return wire_bytes(frozen_codec(), elements, size_);
    return coded() ? wire_bytes(plan_.param.codec, elements, size_) : elements * size_;
  }
  bool coded() const { return param_coded(plan_, flat_, mesh_); }
  uint64_t sum_wire(uint64_t elements) const {
    return wire_bytes(plan_.gradient.codec, elements, sizeof(float));
  }

  const RowCost& row_cost(uint64_t row) {
    const auto [known, fresh] = rows_.try_emplace(row);
    if (!fresh) return known->second;
    RowCost& cost = known->second;
    const uint64_t replicas = mesh_.replicas;
    const uint64_t near = near_replicas();
    std::vector<Wide> elements(near), wire(near);
    Wide sums = 0, params = 0;
    for (uint64_t i = 0; i < replicas; ++i) {
      const uint64_t part = shard_range(row, i, replicas).size();
      cost.parts.push_back(part);
      elements[importer_of(i % near, near)] += part;
      wire[importer_of(i % near, near)] += param_wire(part);
      sums += sum_wire(part);
      params += param_wire(part);
    }
    Wide near_sums = 0, near_params = 0;
    for (uint64_t i = 0; i < replicas; ++i) {
      if (i % near == 0) {
        near_sums = near_params = 0;
        for (uint64_t k = i; k < std::min(i + near, replicas); ++k) {
          near_sums += sum_wire(cost.parts[k]);
          near_params += param_wire(cost.parts[k]);
        }
      }
      cost.far_parts.push_back(elements[i % near] - cost.parts[i]);
      cost.far_param_wire.push_back(wire[i % near] - param_wire(cost.parts[i]));
      cost.all_far_wire.push_back(params - near_params);
      cost.far_sum_wire.push_back(sums - near_sums);
      cost.other_sum_wire.push_back(sums - sum_wire(cost.parts[i]));
    }
    return cost;
  }

  // What `own` of an axis of `members` ranks brings in from those of other nodes, where rank m has
  // `of(m)`: the sum of a class, without its own. (On its own node its class is itself.) `kind`
  // tells the axes apart.
  template <class Of>
  Wide staged(int kind, uint64_t members, uint64_t own, Of of) {
    const uint64_t near = std::min(node_, members);
    if (near == members) return 0;
    // The axis' last node may have fewer ranks, each of which then brings in more.
    const uint64_t importers = std::min(near, members - own / near * near);
    auto& sums = classes_[{kind, importers}];
    if (sums.empty()) {
      sums.resize(importers);
      for (uint64_t m = 0; m < members; ++m) sums[importer_of(m % near, importers)] += of(m);
    }
    return sums[own % near] - of(own);
  }
  uint64_t row_of(uint64_t shard) const { return row_range(flat_.elements, shard, mesh_).size(); }

  void add_params(Tally& cost) {
    const uint64_t n = flat_.elements;
    const bool world_param = over_all(plan_.param, mesh_);
    const bool world_optimizer = over_all(plan_.optimizer, mesh_);
    if (!is_sharded(plan_.param)) {
      cost[kParam] = footprint(n * size_);
      if (flat_.trainable && is_sharded(plan_.optimizer)) add_refresh_of_whole(cost);
      return;
    }
    const Wide gathers = Wide{load_.gathers_per_micro_batch} * load_.micro_batches;
    const uint64_t rest = world_param ? part_ : row_;
    if (!flat_.trainable && plan_.frozen_int8) {
      cost[kParam] = footprint(wire_bytes(frozen_codec(), rest, size_));
    } else if (stored_ && plan_.param.tier == Tier::device) {
      cost[kDeviceParam] = device_value_bytes(plan_, n, rank_, mesh_, size_) +
                           device_copy_bytes(plan_, n, rank_, mesh_, size_);
      if (mirrored(plan_)) cost[kParam] = rest * size_;
    } else if (stored_) {
      const Range held = held_range(plan_.param, flat_.elements, rank_, mesh_);
      cost[kNvmeParam] = value_file_bytes(held, size_);
      // With an f32 master an update writes them without a look at what was there.
      const bool changes = flat_.trainable && flat_.dtype == DType::f32;
      cost[kNvmeRead] += (gathers + (changes ? 1u : 0u)) * rest * size_;
      if (flat_.trainable) cost[kNvmeWritten] += rest * size_;
    } else {
      cost[kParam] = rest * size_;
    }
    if (coded())
      cost[kParam] +=
          footprint(part_ * size_) + footprint(room_bytes(plan_.param.codec, part_, size_));

    const uint64_t shard = rank_ % mesh_.shards;
    const Wide rows = staged(0, mesh_.shards, shard, [&](uint64_t j) { return row_of(j); });
    Wide apart = rows;  // per gather, and so not mapped
    cost[kCopied] += gathers * rows * size_;
    // Between the nodes of one shard axis values go as they are, but for frozen ones.
    const Wide row_wire = replicas() ? rows * size_
                                     : staged(1, mesh_.shards, shard,
                                              [&](uint64_t j) { return param_wire(row_of(j)); });
    cost[kFarGather] += gathers * row_wire;
    if (replicas() && world_param) {
      const Wide parts = row_cost_->far_parts[replica_];
      // A second copy stays until the values change, which frozen ones never do.
      const Wide times = !plan_.second_copy ? gathers : Wide{flat_.trainable ? 1u : 0u};
      apart += parts;
      cost[kCopied] += times * parts * size_;
      cost[kFarGather] += times * row_cost_->far_param_wire[replica_];
      if (copies_on_host(plan_)) cost[kSecondCopy] = parts * size_;
    }
    if (flat_.trainable && replicas() && !world_param && world_optimizer) {
      cost[kCopied] += Wide{row_ - part_} * size_;
      // Replicas share no row: each brings in what far ones have updated.
      cost[kFarGather] += row_cost_->all_far_wire[replica_];
    }
    cost[kMapped] = gathers * (Wide{n - rest} - apart) * size_;
  }

  // Whole parameters: once a step from those who have updated them, rows from the shard axis or
  // parts from all ranks.
  void add_refresh_of_whole(Tally& cost) {
    if (over_all(plan_.optimizer, mesh_) && replicas()) {
      cost[kCopied] = Wide{flat_.elements - part_} * size_;
      cost[kFarGather] = staged(2, mesh_.ranks(), rank_, [&](uint64_t m) {
        return part_range(flat_.elements, m, mesh_).size() * size_;
      });
      return;
    }
    cost[kCopied] = Wide{flat_.elements - row_} * size_;
    cost[kFarGather] = staged(3, mesh_.shards, rank_ % mesh_.shards,
                              [&](uint64_t j) { return row_of(j) * size_; });
  }

  void add_gradients(Tally& cost) const {
    const uint64_t n = flat_.elements;
    const uint64_t gsize = size_of(gradient_dtype(plan_, flat_.dtype));
    const bool sharded = is_sharded(plan_.gradient);
    const bool world_gradient = over_all(plan_.gradient, mesh_);
    const uint64_t owned = held_range(plan_.optimizer, n, rank_, mesh_).size();
    if (!sharded) {
      cost[kBuckets] =
          footprint(n * gsize) + footprint(exchange_bytes(plan_, {flat_}, rank_, mesh_));
    }
    if (plan_.gradient.tier == Tier::device) {
      cost[kDeviceGradient] =
          device_sum_bytes(plan_, n, rank_, mesh_) + device_feedback_bytes(plan_, row_, mesh_);
    } else if (sharded || gsize != sizeof(float)) {
      const uint64_t summed = !replicas() ? owned : world_gradient ? part_ : row_;
      cost[kReduced] = footprint(summed * sizeof(float));
    }
    add_states(cost);

    const Wide reductions = sharded ? load_.micro_batches : 1;
    cost[kReduce] = reductions * (mesh_.shards - 1) * (row_ * gsize);
    cost[kFarReduce] = reductions * far_shards() * (row_ * gsize);
    if (!is_sharded(plan_.optimizer)) {
      cost[kReduce] += (n - part_) * sizeof(float);
      cost[kFarReduce] += far_sums();
    }
    if (!replicas()) return;
    if (plan_.gradient.codec.feedback && plan_.gradient.tier != Tier::device) {
      cost[kFeedback] = footprint(row_ * sizeof(float));
    }
    const Wide exchanges = world_gradient ? reductions : Wide{1};
    const Wide wire =
        sends_gradients(plan_, mesh_, load_.micro_batches == 1) ? part_ * gsize : sum_wire(part_);
    cost[kReduce] += exchanges * (mesh_.replicas - 1) * wire;
    cost[kFarReduce] += exchanges * row_cost_->far_replicas_of(near_replicas()) * wire;
    if (over_all(plan_.optimizer, mesh_)) return;
    cost[kReduce] += row_cost_->other_sum_wire[replica_];
    cost[kFarReduce] += row_cost_->far_sum_wire[replica_];
  }

  void add_states(Tally& cost) const {
    const StateShape shape = state_shape(plan_, flat_, load_.optimizer_states);
    const StateSplit split =
        split_states(plan_, held_range(plan_.optimizer, flat_.elements, rank_, mesh_));
    const uint64_t on_device = split.device.size();
    cost[kDeviceOptimizer] = Wide{shape.states} * state_bytes(shape.dtype, on_device) +
                             (shape.master ? on_device * sizeof(float) : 0);
    const uint64_t here = split.host.size();
    cost[kMoments] = Wide{shape.states} *
                     footprint(state_bytes(shape.dtype, here) + scale_bytes(shape.dtype, here));
    if (shape.master) cost[kMaster] = footprint(here * sizeof(float));
    const uint64_t away = nvme_bytes(shape, plan_.sub_group, split.nvme.size());
    cost[kNvmeOptimizer] = away;
    cost[kNvmeRead] += away;
    cost[kNvmeWritten] += away;
  }

  // Ranks of the shard axis on other nodes.
  uint64_t far_shards() const {
    const uint64_t near = near_shards();
    const uint64_t begin = rank_ % mesh_.shards / near * near;
    return mesh_.shards - std::min(near, mesh_.shards - begin);
  }
  Wide far_sums() const {
    const uint64_t near = near_shards();
    const uint64_t first = rank_ % mesh_.shards / near * near;
    const uint64_t last = std::min(first + near, mesh_.shards) - 1;
    const uint64_t here =
        row_range(flat_.elements, last, mesh_).end - row_range(flat_.elements, first, mesh_).begin;
    return Wide{flat_.elements - here} * sizeof(float);
  }

  const FlatDesc& flat_;
  const bool stored_;
  const Plan& plan_;
  const Workload& load_;
  const MeshShape& mesh_;
  const uint64_t node_;
  const uint64_t size_;
  std::map<uint64_t, RowCost> rows_;  // by the row's size, of which there are three at most
  std::map<std::pair<int, uint64_t>, std::vector<Wide>> classes_;

  uint64_t rank_ = 0;
  uint64_t row_ = 0;
  uint64_t part_ = 0;
  uint64_t replica_ = 0;
  const RowCost* row_cost_ = nullptr;
};

}  // namespace

void add_cost(const FlatDesc& flat, bool stored, const Plan& plan, const Workload& load,
              const MeshShape& mesh, std::vector<Tally>& ranks) {
  FlatCost cost(flat, stored, plan, load, mesh);
  for (uint64_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] += cost.of(rank);
}

}  // namespace meron
