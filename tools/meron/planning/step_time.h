// SPDX-License-Identifier: Apache-2.0
// What plans cost in time on a cluster, and which one to take. Times follow from the bytes that
// predict.h counts and the rates of the cluster; nothing is measured:
//
// - between nodes: the bytes that all ranks of a node receive from other nodes, over the rate of
//   the node's link. They send as many, the other way at the same time.
// - inside a node: the bytes that a rank receives from local peers, over the rate of its link to
//   them. Parameters that are read in place cross no link.
// - messages: one latency for each unit, phase and kind of link. Messages to several peers in one
//   phase overlap.
// - memory: what a rank receives is written once and read once; an update reads and writes
//   28 bytes per element that the rank updates, and writes 2 more for 16-bit parameters.
//
// With perfect overlap computation, both links and copies run at the same time, and the update
// follows; without overlap each waits for the one before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"
#include "tools/meron/planning/cluster.h"

namespace meron::planning {

struct ClusterLoad {
  uint32_t micro_batches = 1;            // per optimizer step
  uint32_t gathers_per_micro_batch = 2;  // of each unit: forward and backward
  uint32_t tokens = 0;         // per device and micro-batch: 6 * elements * tokens / flops seconds
  double compute_seconds = 0;  // per micro-batch, instead
};

// Per optimizer step.
struct LinkCost {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  double transfer = 0;  // seconds
  double waiting = 0;   // seconds, for messages

  double seconds() const { return transfer + waiting; }
  bool operator==(const LinkCost&) const = default;
};

// Bytes on the fullest device.
struct MemoryNeed {
  uint64_t states = 0;     // as predicted
  uint64_t gathered = 0;   // of unsharded units: the largest, and the next one
  uint64_t available = 0;  // memory of the device for both

  uint64_t total() const { return states + gathered; }
  bool fits() const { return total() <= available; }
  uint64_t lacking() const { return fits() ? 0 : total() - available; }
  bool operator==(const MemoryNeed&) const = default;
};

struct Estimate {
  Plan plan;
  MeshShape mesh;
  bool lossy = false;     // values are rounded between replicas
  LinkCost between = {};  // of the busiest node
  LinkCost inside = {};   // of the busiest device
  uint64_t copied = 0;    // bytes of memory traffic, of the busiest device, without the update
  uint64_t updated = 0;   // the same of the update
  double copying = 0;     // seconds
  double updating = 0;    // seconds
  double computing = 0;   // seconds
  MemoryNeed memory = {};
  double with_overlap() const;
  double without_overlap() const;
  // By which plans are ranked: real steps take between the two.
  double middle() const { return (with_overlap() + without_overlap()) / 2; }

  bool operator==(const Estimate&) const = default;
};

// Refuses what predict() does, and a load that gives computation twice or tokens without flops.
Result<Estimate> estimate(const Plan& plan, const ModelDesc& model, const Cluster& cluster,
                          const ClusterLoad& load);

struct Ranking {
  Cluster cluster;
  ClusterLoad load;
  uint64_t units = 0;
  uint64_t elements = 0;
  std::vector<Estimate> estimates =
      {};  // the best first; those that do not fit last, by what they lack
};

// Of all that strategies_for() offers.
Result<Ranking> rank_strategies(const ModelDesc& model, const Cluster& cluster,
                                const ClusterLoad& load);

// Sentences about a ranking: the limit of the best plan, the reason why the next is slower, and the
// plans that do not fit.
std::vector<std::string> explain(const Ranking& ranking);

std::string to_json(const Ranking& ranking, int indent = 2);
std::string to_table(const Ranking& ranking);

}  // namespace meron::planning
