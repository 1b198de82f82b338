// SPDX-License-Identifier: Apache-2.0
#include "plan/table.h"

#include <fmt/format.h>

#include "plan/columns.h"

namespace meron {

namespace {

std::string codec_text(const Codec& codec) {
  std::string out(name_of(codec.kind));
  if (codec.blocked()) out += fmt::format(" by {}", codec.block);
  if (codec.stochastic) out += ", stochastic";
  if (codec.hadamard) out += ", hadamard";
  if (codec.feedback) out += ", feedback";
  if (codec.difference) out += ", difference";
  return out;
}

std::string mesh_text(const Mesh& mesh) {
  if (mesh.shard == Mesh::kNode) return "mesh: replica x shard, the shard axis a node's ranks\n";
  return fmt::format("mesh: replica x shard, the shard axis {} rank{}\n", mesh.shard,
                     mesh.shard == 1 ? "" : "s");
}

}  // namespace

std::string to_table(const Plan& plan) {
  const auto entry = [](const char* kind, const Row& from, const char* no_dtype, bool travels) {
    return std::vector<std::string>{kind, std::string(name_of(from.sharding)),
                                    std::string(name_of(from.tier)),
                                    from.dtype ? std::string(name_of(*from.dtype)) : no_dtype,
                                    travels ? codec_text(from.codec) : "-"};
  };
  std::vector<std::vector<std::string>> rows = {
      {"kind", "sharded over", "tier", "dtype", "wire codec"},
      entry("param", plan.param,
            plan.frozen_int8 ? "as registered, int8 where frozen" : "as registered", true)};
  if (plan.second_copy) {
    rows.push_back({"param, secondary partition", "shard", std::string(name_of(plan.param.tier)),
                    "as registered", "-"});
  }
  rows.push_back(entry("gradient", plan.gradient, "as param", true));
  std::string tier(name_of(plan.optimizer.tier));
  if (plan.optimizer.tier == Tier::nvme && plan.nvme_fraction < 1.0) {
    tier = fmt::format("{:.3g} % nvme, host", 100.0 * plan.nvme_fraction);
  }
  rows.push_back({"optimizer", std::string(name_of(plan.optimizer.sharding)), std::move(tier),
                  std::string(name_of(plan.state_dtype)), "-"});
  std::string out = fmt::format("plan {}\n", plan.name);
  if (plan.mesh.shard != Mesh::kAll) out += mesh_text(plan.mesh);
  out += in_columns(rows, 5);
  if (is_sharded(plan.gradient)) {
    out += fmt::format("gradient buckets in the ring: {}\n", plan.gradient_buckets);
  }
  if (!plan.nvme.path.empty()) {
    out += fmt::format("nvme: {}, {} KiB x {} requests", plan.nvme.path, plan.nvme.block / 1024,
                       plan.nvme.depth);
    if (plan.optimizer.tier == Tier::nvme) {
      out += fmt::format("; {} buffers of {} elements' states", plan.state_buffers, plan.sub_group);
    }
    if (plan.param.tier == Tier::nvme) {
      out += fmt::format("; at most {} units of changed parameters in memory", plan.param_buffers);
      if (plan.resident > 0) out += fmt::format(", and {} elements at all times", plan.resident);
    }
    out += "\n";
  }
  return out;
}

}  // namespace meron
