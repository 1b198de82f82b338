// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/candidate_plans.h"

#include <fmt/format.h>

#include <string_view>

#include "plan/hybrids.h"

namespace meron::planning {
namespace {

// Every size that divides a node, then two, four, ... nodes.
std::vector<uint32_t> shard_sizes(const Cluster& cluster) {
  std::vector<uint32_t> sizes;
  const uint32_t node = cluster.devices_per_node;
  for (uint32_t size = 2; size <= node; ++size) {
    if (node % size == 0 && size < cluster.devices()) sizes.push_back(size);
  }
  for (uint32_t nodes = 2; nodes < cluster.nodes && cluster.nodes % nodes == 0; nodes *= 2) {
    sizes.push_back(nodes * node);
  }
  return sizes;
}

}  // namespace

std::vector<Plan> strategies_for(const Cluster& cluster) {
  std::vector<Plan> plans;
  // A test checks that every table parses.
  const auto add = [&](Result<Plan> plan) {
    if (plan) plans.push_back(*std::move(plan));
  };
  for (const char* name : {"zero0", "zero1", "zero2", "zero3"}) add(preset(name));
  for (const uint32_t size : shard_sizes(cluster)) add(preset(fmt::format("mics({})", size)));
  for (const char* name : {"hpz", "zeropp"}) add(preset(name));
  if (cluster.nodes == 1) return plans;  // a mesh of nodes has no replicas then
  for (const std::string_view name : hybrid_names()) add(preset(name));
  return plans;
}

}  // namespace meron::planning
