// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/step_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/predict_flat.h"
#include "tools/meron/planning/candidate_plans.h"

namespace meron::planning {
namespace {

constexpr uint64_t kUpdateBytes = 28;   // gradient, moments and value of f32: 16 read, 12 written
constexpr double kFlopsPerElement = 6;  // and token: 2 forward, 4 backward
constexpr uint64_t kUnitsAtATime = 2;   // one in use, one being gathered

Status check_load(const Cluster& cluster, const ClusterLoad& load) {
  const auto refuse = [](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), advice).on("workload");
  };
  if (!(load.compute_seconds >= 0) || !std::isfinite(load.compute_seconds)) {
    return refuse(fmt::format("computation takes {} s", load.compute_seconds),
                  "give a number of seconds from 0");
  }
  if (load.tokens > 0 && load.compute_seconds > 0) {
    return refuse("the time of computation is given twice", "give seconds or tokens, not both");
  }
  if (load.tokens > 0 && cluster.flops == 0) {
    return refuse("tokens are given, but not how fast a device computes",
                  "give the key \"device.flops\" in the cluster, or seconds instead of tokens");
  }
  return Ok{};
}

// How many phases a step has for one unit, by the kind of link. Each is a wait for messages.
struct Phases {
  uint64_t between = 0;
  uint64_t inside = 0;

  // A phase among ranks on several nodes, or of one node, or both.
  void add(uint64_t times, bool several_nodes, bool shared) {
    if (several_nodes) between += times;
    if (shared) inside += times;
  }
};

// Axes with several ranks on one node (local peers), and axes that span nodes (remote peers).
struct Places {
  Places(const MeshShape& mesh, uint64_t node)
      : remote_shards(mesh.shards > node),
        local_shards(std::min(node, mesh.shards) > 1),
        local_replicas(std::max<uint64_t>(1, std::min(node / mesh.shards, mesh.replicas))),
        remote_sub_shards(mesh.replicas > local_replicas),
        local_sub_shards(local_replicas > 1) {}
  bool remote_shards;
  bool local_shards;
  uint64_t local_replicas;
  bool remote_sub_shards;
  bool local_sub_shards;
};

Phases gather_phases(const Plan& plan, const MeshShape& mesh, const ClusterLoad& load,
                     const Places& at) {
  Phases phases;
  const bool optimizer_over_all = over_all(plan.optimizer, mesh);
  const bool param_over_all = over_all(plan.param, mesh);
  if (!is_sharded(plan.param)) {
    const bool replicas_too = optimizer_over_all && mesh.replicas > 1;
    if (is_sharded(plan.optimizer)) {
      phases.add(1, at.remote_shards || (replicas_too && at.remote_sub_shards),
                 at.local_shards || (replicas_too && at.local_sub_shards));
    }
    return phases;
  }
  const uint64_t gathers = uint64_t{load.gathers_per_micro_batch} * load.micro_batches;
  const bool world = param_over_all && mesh.replicas > 1;
  // With a secondary partition (hpZ) one gather stages what other nodes own, and the others stay on
  // the shard axis.
  const uint64_t staging = plan.param.secondary_partition ? 1 : gathers;
  phases.between += at.remote_shards ? gathers : world && at.remote_sub_shards ? staging : 0;
  phases.inside += at.local_shards ? gathers : world && at.local_sub_shards ? staging : 0;
  if (!param_over_all && optimizer_over_all)
    phases.add(1, at.remote_sub_shards, at.local_sub_shards);
  return phases;
}

Phases reduce_phases(const Plan& plan, const MeshShape& mesh, const ClusterLoad& load,
                     const Places& at) {
  Phases phases;
  const uint64_t reductions = is_sharded(plan.gradient) ? load.micro_batches : 1;
  phases.add(reductions, at.remote_shards, at.local_shards);
  if (!is_sharded(plan.optimizer))
    phases.add(1, at.remote_shards, at.local_shards);  // others' sums
  if (mesh.replicas == 1) return phases;
  phases.add(over_all(plan.gradient, mesh) ? reductions : 1, at.remote_sub_shards,
             at.local_sub_shards);
  if (!over_all(plan.optimizer, mesh)) phases.add(1, at.remote_sub_shards, at.local_sub_shards);
  return phases;
}

// The bytes of parameters that a rank copies from local peers: those that an optimizer which is
// sharded over more ranks than the parameters has updated.
uint64_t copied_from_local(const Plan& plan, const MeshShape& mesh, const LinkPrediction& links,
                           const Places& at) {
  const bool refresh = is_sharded(plan.param)
                           ? !over_all(plan.param, mesh) && over_all(plan.optimizer, mesh)
                           : is_sharded(plan.optimizer);
  if (!refresh) return 0;
  if (plan.param.codec.kind == CodecKind::none) {
    return links.gather_copied - links.inter_node_gather;
  }
  // Remote bytes are counted as encoded: take the share of the local replicas.
  return static_cast<uint64_t>(Wide{links.gather_copied} * (at.local_replicas - 1) /
                               (mesh.replicas - 1));
}

// Rank 0 has the largest shard of each flat.
uint64_t update_bytes(const Plan& plan, const ModelDesc& model, const MeshShape& mesh) {
  uint64_t bytes = 0;
  for (const UnitDesc& unit : model.units) {
    for (const FlatDesc& flat : unit.flats) {
      if (!flat.trainable) continue;
      const uint64_t elements = held_range(plan.optimizer, flat.elements, 0, mesh).size();
      bytes += elements * (kUpdateBytes + (flat.dtype == DType::f32 ? 0 : size_of(flat.dtype)));
    }
  }
  return bytes;
}

// Bytes of gathered units, beside the states.
uint64_t gathered_bytes(const Plan& plan, const ModelDesc& model, const Cluster& cluster) {
  if (!is_sharded(plan.param)) return 0;
  uint64_t largest = 0;
  for (const UnitDesc& unit : model.units) {
    uint64_t bytes = 0;
    for (const FlatDesc& flat : unit.flats) bytes += flat.elements * size_of(flat.dtype);
    largest = std::max(largest, bytes);
  }
  const uint64_t sharers = cluster.in_place ? cluster.devices_per_node : 1;
  const uint64_t units = std::min<uint64_t>(kUnitsAtATime, model.units.size());
  return units * ((largest + sharers - 1) / sharers);
}

LinkCost link_cost(uint64_t bytes, uint64_t messages, const LinkSpeed& speed) {
  LinkCost cost{.bytes = bytes, .messages = messages};
  if (bytes > 0) cost.transfer = static_cast<double>(bytes) / speed.rate;
  cost.waiting = static_cast<double>(messages) * speed.latency;
  return cost;
}

void add_traffic(const Prediction& prediction, const Cluster& cluster, const Phases& phases,
                 const Places& at, Estimate& out) {
  uint64_t busiest_node = 0, busiest_device = 0;
  for (size_t first = 0; first < prediction.ranks.size(); first += cluster.devices_per_node) {
    uint64_t node = 0;
    for (size_t r = first; r < first + cluster.devices_per_node; ++r) {
      const LinkPrediction& links = prediction.ranks[r].links;
      node += links.inter_node_gather + links.inter_node_reduce;
      const uint64_t mapped = cluster.in_place ? 0 : links.gather_mapped;
      const uint64_t local = mapped + copied_from_local(out.plan, out.mesh, links, at);
      busiest_device = std::max(busiest_device, local + links.reduce - links.inter_node_reduce);
      out.copied = std::max(out.copied, 2 * (mapped + links.gather_copied + links.reduce));
    }
    busiest_node = std::max(busiest_node, node);
  }
  const uint64_t units = prediction.units;
  out.between = link_cost(busiest_node, phases.between * units, cluster.between);
  out.inside = link_cost(busiest_device, phases.inside * units, cluster.inside);
  out.copying = static_cast<double>(out.copied) / cluster.memory_rate;
}

}  // namespace

double Estimate::with_overlap() const {
  return std::max({computing, between.seconds(), inside.seconds(), copying}) + updating;
}

double Estimate::without_overlap() const {
  return computing + between.seconds() + inside.seconds() + copying + updating;
}

Result<Estimate> estimate(const Plan& plan, const ModelDesc& model, const Cluster& cluster,
                          const ClusterLoad& load) {
  MERON_TRY(check_load(cluster, load));
  MERON_ASSIGN(const Prediction prediction,
               predict(plan, model,
                       {.ranks = cluster.devices(),
                        .micro_batches = load.micro_batches,
                        .gathers_per_micro_batch = load.gathers_per_micro_batch,
                        .node = cluster.devices_per_node}));
  const MeshShape& mesh = prediction.mesh;
  Estimate out{.plan = plan, .mesh = mesh};
  out.lossy = mesh.replicas > 1 && (plan.param.codec.kind != CodecKind::none ||
                                    plan.gradient.codec.kind != CodecKind::none);
  const Places at(mesh, cluster.devices_per_node);
  Phases phases = gather_phases(plan, mesh, load, at);
  if (prediction.trainable_elements > 0) {
    const Phases reduce = reduce_phases(plan, mesh, load, at);
    phases.between += reduce.between;
    phases.inside += reduce.inside;
  }
  add_traffic(prediction, cluster, phases, at, out);
  out.updated = update_bytes(plan, model, mesh);
  out.updating = static_cast<double>(out.updated) / cluster.memory_rate;
  out.computing = load.micro_batches * load.compute_seconds;
  if (load.tokens > 0) {
    out.computing = kFlopsPerElement * static_cast<double>(prediction.elements) * load.tokens *
                    load.micro_batches / cluster.flops;
  }
  out.memory.states = prediction.peak_host;
  out.memory.gathered = gathered_bytes(plan, model, cluster);
  out.memory.available = static_cast<uint64_t>(cluster.memory - cluster.reserved);
  return out;
}

Result<Ranking> rank_strategies(const ModelDesc& model, const Cluster& cluster,
                                const ClusterLoad& load) {
  Ranking ranking{.cluster = cluster, .load = load, .units = model.units.size()};
  for (const UnitDesc& unit : model.units) {
    for (const FlatDesc& flat : unit.flats) ranking.elements += flat.elements;
  }
  for (const Plan& plan : strategies_for(cluster)) {
    MERON_ASSIGN(Estimate cost, estimate(plan, model, cluster, load));
    ranking.estimates.push_back(std::move(cost));
  }
  std::stable_sort(ranking.estimates.begin(), ranking.estimates.end(),
                   [](const Estimate& a, const Estimate& b) {
                     if (a.memory.lacking() != b.memory.lacking())
                       return a.memory.lacking() < b.memory.lacking();
                     return a.middle() < b.middle();
                   });
  return ranking;
}

}  // namespace meron::planning
