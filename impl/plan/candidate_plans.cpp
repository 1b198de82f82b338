// SPDX-License-Identifier: Apache-2.0
#include "plan/candidate_plans.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "plan/plan_json.h"

namespace meron {
namespace {

// Presets with changes, as a trainer could write them.
constexpr std::array<std::string_view, 8> kHybrids = {
    // The optimizer over all ranks; gradients are summed inside a node before they leave it.
    R"({"name": "zero1 by nodes", "mesh": {"shard": "node"},
        "optimizer": {"sharding": "replica x shard"}})",
    R"({"name": "zero2 by nodes", "mesh": {"shard": "node"},
        "gradient": {"sharding": "replica x shard"},
        "optimizer": {"sharding": "replica x shard"}})",
    R"({"name": "zero3 by nodes", "preset": "hpz", "param": {"secondary_partition": "none"}})",
    // The volume of ZeRO-3 as its authors count it: 16 bits for every element, three times.
    R"({"name": "zero3 by nodes + bf16 sums", "preset": "hpz", "param": {"secondary_partition": "none"},
        "gradient": {"codec": "bf16"}})",
    R"({"name": "hpz + bf16 sums", "preset": "hpz", "gradient": {"codec": "bf16"}})",
    R"({"name": "mics + int4 gradients", "preset": "mics",
        "gradient": {"codec": {"kind": "int4", "feedback": {"beta": 0.8, "reset": 1024}}}})",
    // Parameters and gradients over a node, the optimizer over all.
    R"({"name": "mics + optimizer over all", "preset": "mics",
        "optimizer": {"sharding": "replica x shard"}})",
    R"({"name": "mics + optimizer over all + int8/int4", "preset": "mics",
        "param": {"codec": "int8"},
        "gradient": {"codec": {"kind": "int4", "feedback": {"beta": 0.8, "reset": 1024}}},
        "optimizer": {"sharding": "replica x shard"}})"};

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

std::optional<Result<Plan>> hybrid(std::string_view name) {
  for (const std::string_view table : kHybrids) {
    // The key "name" is the first of each.
    if (table.starts_with(fmt::format(R"({{"name": "{}",)", name))) return parse_plan(table);
  }
  return std::nullopt;
}

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
  for (const std::string_view hybrid : kHybrids) add(parse_plan(hybrid));
  return plans;
}

}  // namespace meron
