// SPDX-License-Identifier: Apache-2.0
#include "plan/predict_flat.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/state_layout.h"
#include "plan/value_layout.h"

namespace meron {
namespace {

// A shard, cut into one sub-shard per replica. "Remote" are replicas on other nodes. By replica:
struct ShardCost {
  std::vector<uint64_t> sub_shards;     // elements
  std::vector<Wide> remote_elements;    // of remote sub-shards that this replica stages
  std::vector<Wide> remote_param_wire;  // their bytes on the wire
  std::vector<Wide> all_remote_wire;    // bytes on the wire of all remote sub-shards
  std::vector<Wide> remote_sum_wire;    // the same of their gradient sums
  std::vector<Wide> other_sum_wire;     // of the gradient sums of all other replicas
  uint64_t remote_replicas(uint64_t local) const { return sub_shards.size() - local; }
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
    shard_ = row_range(flat_.elements, rank, mesh_).size();
    replica_ = rank / mesh_.shards;
    shard_cost_ = &shard_cost(shard_);
    sub_shard_ = shard_cost_->sub_shards[replica_];
    Tally cost;
    add_params(cost);
    if (flat_.trainable) add_gradients(cost);
    return cost;
  }

 private:
  bool replicas() const { return mesh_.replicas > 1; }
  // Replicas on this rank's node. The mesh fits the nodes: mesh_shape().
  uint64_t local_replicas() const {
    return std::max<uint64_t>(1, std::min(node_ / mesh_.shards, mesh_.replicas));
  }
  uint64_t local_shards() const { return std::min(node_, mesh_.shards); }

  // Bytes of parameters on the wire.
  uint64_t param_wire(uint64_t elements) const {
    if (!flat_.trainable && plan_.param.frozen_int8)
      return wire_bytes(frozen_codec(), elements, size_);
    return coded() ? wire_bytes(plan_.param.codec, elements, size_) : elements * size_;
  }
  bool coded() const { return param_coded(plan_, flat_, mesh_); }
  uint64_t sum_wire(uint64_t elements) const {
    return wire_bytes(plan_.gradient.codec, elements, sizeof(float));
  }

  const ShardCost& shard_cost(uint64_t shard) {
    const auto [known, fresh] = shard_costs_.try_emplace(shard);
    if (!fresh) return known->second;
    ShardCost& cost = known->second;
    const uint64_t replicas = mesh_.replicas;
    const uint64_t local = local_replicas();
    std::vector<Wide> elements(local), wire(local);
    Wide sums = 0, params = 0;
    for (uint64_t i = 0; i < replicas; ++i) {
      const uint64_t sub_shard = shard_range(shard, i, replicas).size();
      cost.sub_shards.push_back(sub_shard);
      elements[importer_of(i % local, local)] += sub_shard;
      wire[importer_of(i % local, local)] += param_wire(sub_shard);
      sums += sum_wire(sub_shard);
      params += param_wire(sub_shard);
    }
    Wide local_sums = 0, local_params = 0;
    for (uint64_t i = 0; i < replicas; ++i) {
      if (i % local == 0) {
        local_sums = local_params = 0;
        for (uint64_t k = i; k < std::min(i + local, replicas); ++k) {
          local_sums += sum_wire(cost.sub_shards[k]);
          local_params += param_wire(cost.sub_shards[k]);
        }
      }
      cost.remote_elements.push_back(elements[i % local] - cost.sub_shards[i]);
      cost.remote_param_wire.push_back(wire[i % local] - param_wire(cost.sub_shards[i]));
      cost.all_remote_wire.push_back(params - local_params);
      cost.remote_sum_wire.push_back(sums - local_sums);
      cost.other_sum_wire.push_back(sums - sum_wire(cost.sub_shards[i]));
    }
    return cost;
  }

  enum class Axis { shard, shard_wire, world_refresh, shard_refresh };
  // Amount that member `own` of an axis of `members` ranks stages from ranks of other nodes. Member
  // m has `of(m)`. The ranks of a node share the work by position: see importer_of().
  template <class Of>
  Wide staged(Axis axis, uint64_t members, uint64_t own, Of of) {
    const uint64_t local = std::min(node_, members);
    if (local == members) return 0;
    // If the last node has fewer ranks, each of them stages more.
    const uint64_t importers = std::min(local, members - own / local * local);
    auto& sums = staged_sums_[{axis, importers}];
    if (sums.empty()) {
      sums.resize(importers);
      for (uint64_t m = 0; m < members; ++m) sums[importer_of(m % local, importers)] += of(m);
    }
    return sums[own % local] - of(own);
  }
  uint64_t shard_size(uint64_t shard) const {
    return row_range(flat_.elements, shard, mesh_).size();
  }

  void add_params(Tally& cost) {
    const uint64_t n = flat_.elements;
    const bool world_param = over_all(plan_.param, mesh_);
    const bool world_optimizer = over_all(plan_.optimizer, mesh_);
    if (!is_sharded(plan_.param)) {
      cost[kParam] = footprint(n * size_);
      if (flat_.trainable && is_sharded(plan_.optimizer)) add_refresh_of_unsharded(cost);
      return;
    }
    const Wide gathers = Wide{load_.gathers_per_micro_batch} * load_.micro_batches;
    const uint64_t held = world_param ? sub_shard_ : shard_;
    if (!flat_.trainable && plan_.param.frozen_int8) {
      cost[kParam] = footprint(wire_bytes(frozen_codec(), held, size_));
    } else if (stored_ && plan_.param.tier == Tier::device) {
      cost[kDeviceParam] = device_value_bytes(plan_, n, rank_, mesh_, size_) +
                           device_secondary_bytes(plan_, n, rank_, mesh_, size_);
      if (mirrored(plan_)) cost[kParam] = held * size_;
    } else if (stored_) {
      cost[kNvmeParam] =
          value_file_bytes(held_range(plan_.param, flat_.elements, rank_, mesh_), size_);
      // An update with an f32 master writes them without reading them.
      const bool changes = flat_.trainable && flat_.dtype == DType::f32;
      cost[kNvmeRead] += (gathers + (changes ? 1u : 0u)) * held * size_;
      if (flat_.trainable) cost[kNvmeWritten] += held * size_;
    } else {
      cost[kParam] = held * size_;
    }
    if (coded())
      cost[kParam] += footprint(sub_shard_ * size_) +
                      footprint(room_bytes(plan_.param.codec, sub_shard_, size_));

    const uint64_t position = rank_ % mesh_.shards;
    const Wide shards =
        staged(Axis::shard, mesh_.shards, position, [&](uint64_t j) { return shard_size(j); });
    Wide not_mapped = shards;  // elements per gather
    cost[kCopied] += gathers * shards * size_;
    // Between the nodes of one shard axis only frozen values are encoded.
    const Wide shard_wire = replicas()
                                ? shards * size_
                                : staged(Axis::shard_wire, mesh_.shards, position,
                                         [&](uint64_t j) { return param_wire(shard_size(j)); });
    cost[kInterNodeGather] += gathers * shard_wire;
    if (replicas() && world_param) {
      const Wide elements = shard_cost_->remote_elements[replica_];
      // The secondary partition stays valid until the values change. Frozen ones never do.
      const Wide times =
          !plan_.param.secondary_partition ? gathers : Wide{flat_.trainable ? 1u : 0u};
      not_mapped += elements;
      cost[kCopied] += times * elements * size_;
      cost[kInterNodeGather] += times * shard_cost_->remote_param_wire[replica_];
      if (secondary_on_host(plan_)) cost[kSecondaryPartition] = elements * size_;
    }
    if (flat_.trainable && replicas() && !world_param && world_optimizer) {
      cost[kCopied] += Wide{shard_ - sub_shard_} * size_;
      // Each replica stages what remote replicas have updated.
      cost[kInterNodeGather] += shard_cost_->all_remote_wire[replica_];
    }
    cost[kMapped] = gathers * (Wide{n - held} - not_mapped) * size_;
  }

  // Parameters that are not sharded: once a step, from the ranks that have updated them.
  void add_refresh_of_unsharded(Tally& cost) {
    if (over_all(plan_.optimizer, mesh_) && replicas()) {
      cost[kCopied] = Wide{flat_.elements - sub_shard_} * size_;
      cost[kInterNodeGather] = staged(Axis::world_refresh, mesh_.ranks(), rank_, [&](uint64_t m) {
        return part_range(flat_.elements, m, mesh_).size() * size_;
      });
      return;
    }
    cost[kCopied] = Wide{flat_.elements - shard_} * size_;
    cost[kInterNodeGather] = staged(Axis::shard_refresh, mesh_.shards, rank_ % mesh_.shards,
                                    [&](uint64_t j) { return shard_size(j) * size_; });
  }

  void add_gradients(Tally& cost) const {
    const uint64_t n = flat_.elements;
    const uint64_t gsize = size_of(gradient_dtype(plan_, flat_.dtype, load_.micro_batches));
    const bool sharded = is_sharded(plan_.gradient);
    const bool world_gradient = over_all(plan_.gradient, mesh_);
    const uint64_t owned = held_range(plan_.optimizer, n, rank_, mesh_).size();
    const uint64_t summed = !replicas() ? owned : world_gradient ? sub_shard_ : shard_;
    const bool widened = widens(plan_, flat_.dtype);
    if (!sharded) {
      // A sum of the whole flat is the f32 bucket of one that widens.
      const uint64_t bucket = widened && summed == n ? n * size_ : n * gsize;
      cost[kBuckets] = footprint(bucket) + footprint(exchange_bytes(plan_, {flat_}, rank_, mesh_));
    }
    if (plan_.gradient.tier == Tier::device) {
      cost[kDeviceGradient] =
          device_sum_bytes(plan_, n, rank_, mesh_) + device_feedback_bytes(plan_, shard_, mesh_);
    } else if (sharded || widened || gsize != sizeof(float)) {
      cost[kReduced] = footprint(summed * sizeof(float));
    }
    add_states(cost);

    const Wide reductions = sharded ? load_.micro_batches : 1;
    cost[kReduce] = reductions * (mesh_.shards - 1) * (shard_ * gsize);
    cost[kInterNodeReduce] = reductions * remote_shards() * (shard_ * gsize);
    if (!is_sharded(plan_.optimizer)) {
      cost[kReduce] += (n - sub_shard_) * sizeof(float);
      cost[kInterNodeReduce] += remote_sums();
    }
    if (!replicas()) return;
    if (plan_.gradient.codec.feedback && plan_.gradient.tier != Tier::device) {
      cost[kFeedback] = footprint(shard_ * sizeof(float));
    }
    const Wide exchanges = world_gradient ? reductions : Wide{1};
    const Wide wire = sends_gradients(plan_, mesh_, load_.micro_batches == 1)
                          ? sub_shard_ * gsize
                          : sum_wire(sub_shard_);
    cost[kReduce] += exchanges * (mesh_.replicas - 1) * wire;
    cost[kInterNodeReduce] += exchanges * shard_cost_->remote_replicas(local_replicas()) * wire;
    if (over_all(plan_.optimizer, mesh_)) return;
    cost[kReduce] += shard_cost_->other_sum_wire[replica_];
    cost[kInterNodeReduce] += shard_cost_->remote_sum_wire[replica_];
  }

  void add_states(Tally& cost) const {
    const StateShape shape = state_shape(plan_, flat_, load_.optimizer_states);
    const StateSplit split =
        split_states(plan_, shape, held_range(plan_.optimizer, flat_.elements, rank_, mesh_));
    const uint64_t on_device = split.device.size();
    cost[kDeviceOptimizer] = Wide{shape.states} * state_bytes(shape.dtype, on_device) +
                             (shape.master ? on_device * sizeof(float) : 0);
    const uint64_t on_host = split.host.size();
    cost[kMoments] = Wide{shape.states} * footprint(state_bytes(shape.dtype, on_host) +
                                                    scale_bytes(shape.dtype, on_host));
    if (shape.master) cost[kMaster] = footprint(on_host * sizeof(float));
    const uint64_t on_nvme = nvme_bytes(shape, plan_.optimizer.sub_group, split.nvme.size());
    cost[kNvmeOptimizer] = on_nvme;
    cost[kNvmeRead] += on_nvme;
    cost[kNvmeWritten] += on_nvme;
  }

  // Ranks of the shard axis on other nodes.
  uint64_t remote_shards() const {
    const uint64_t local = local_shards();
    const uint64_t begin = rank_ % mesh_.shards / local * local;
    return mesh_.shards - std::min(local, mesh_.shards - begin);
  }
  Wide remote_sums() const {
    const uint64_t local = local_shards();
    const uint64_t first = rank_ % mesh_.shards / local * local;
    const uint64_t last = std::min(first + local, mesh_.shards) - 1;
    const uint64_t of_node =
        row_range(flat_.elements, last, mesh_).end - row_range(flat_.elements, first, mesh_).begin;
    return Wide{flat_.elements - of_node} * sizeof(float);
  }

  const FlatDesc& flat_;
  const bool stored_;
  const Plan& plan_;
  const Workload& load_;
  const MeshShape& mesh_;
  const uint64_t node_;
  const uint64_t size_;
  std::map<uint64_t, ShardCost> shard_costs_;  // by the shard's size: at most three sizes
  std::map<std::pair<Axis, uint64_t>, std::vector<Wide>> staged_sums_;

  uint64_t rank_ = 0;
  uint64_t shard_ = 0;
  uint64_t sub_shard_ = 0;
  uint64_t replica_ = 0;
  const ShardCost* shard_cost_ = nullptr;
};

}  // namespace

void add_cost(const FlatDesc& flat, bool stored, const Plan& plan, const Workload& load,
              const MeshShape& mesh, std::vector<Tally>& ranks) {
  FlatCost cost(flat, stored, plan, load, mesh);
  for (uint64_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] += cost.of(rank);
}

}  // namespace meron
