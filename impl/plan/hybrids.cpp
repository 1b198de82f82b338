// SPDX-License-Identifier: Apache-2.0
#include "plan/hybrids.h"

#include <array>

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

// The text of the key "name", which is the first of each table.
constexpr std::string_view name_in(std::string_view table) {
  constexpr std::string_view kKey = R"({"name": ")";
  table.remove_prefix(kKey.size());
  return table.substr(0, table.find('"'));
}

}  // namespace

std::vector<std::string_view> hybrid_names() {
  std::vector<std::string_view> names;
  for (const std::string_view table : kHybrids) names.push_back(name_in(table));
  return names;
}

std::optional<Result<Plan>> hybrid(std::string_view name) {
  for (const std::string_view table : kHybrids) {
    if (name_in(table) == name) return parse_plan(table);
  }
  return std::nullopt;
}

}  // namespace meron
