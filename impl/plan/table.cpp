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
  const auto entry = [](const char* kind, const Row& row, std::string_view dtype) {
    return std::vector<std::string>{kind, std::string(name_of(row.sharding)),
                                    std::string(name_of(row.tier)), std::string(dtype),
                                    codec_text(row.codec)};
  };
  std::vector<std::vector<std::string>> rows = {
      {"kind", "sharded over", "tier", "dtype", "wire codec"},
      entry("param", plan.param,
            plan.param.frozen_int8 ? "as registered, int8 where frozen" : "as registered")};
  if (plan.param.secondary_partition) {
    rows.push_back({"param, secondary partition", "shard", std::string(name_of(plan.param.tier)),
                    "as registered", "-"});
  }
  const auto dtype = plan.gradient.dtype;
  const std::string_view unnamed =
      is_sharded(plan.gradient) || plan.gradient.rounds ? "as param" : "as param, added in f32";
  rows.push_back(entry("gradient", plan.gradient, dtype ? name_of(*dtype) : unnamed));
  std::string tier(name_of(plan.optimizer.tier));
  if (plan.optimizer.tier == Tier::nvme && plan.optimizer.fraction < 1.0) {
    tier = fmt::format("{:.3g} % nvme, host", 100.0 * plan.optimizer.fraction);
  }
  rows.push_back({"optimizer", std::string(name_of(plan.optimizer.sharding)), std::move(tier),
                  std::string(name_of(plan.optimizer.dtype)), "-"});
  std::string out = fmt::format("plan {}\n", plan.name);
  if (plan.mesh.shard != Mesh::kAll) out += mesh_text(plan.mesh);
  out += in_columns(rows, 5);
  if (is_sharded(plan.gradient)) {
    out += fmt::format("gradient buckets in the ring: {}\n", plan.gradient.buckets);
  }
  if (!plan.nvme.path.empty()) {
    out += fmt::format("nvme: {}, {} KiB x {} requests", plan.nvme.path, plan.nvme.block / 1024,
                       plan.nvme.depth);
    if (plan.optimizer.tier == Tier::nvme) {
      out += fmt::format("; {} buffers of {} elements' states", plan.optimizer.buffers,
                         plan.optimizer.sub_group);
    }
    if (plan.param.tier == Tier::nvme) {
      out += fmt::format("; at most {} units of changed parameters in memory", plan.param.buffers);
      if (plan.param.resident > 0)
        out += fmt::format(", and {} elements at all times", plan.param.resident);
    }
    out += "\n";
  }
  return out;
}

}  // namespace meron
