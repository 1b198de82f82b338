// SPDX-License-Identifier: Apache-2.0
// A plan as JSON text, and how two such texts differ.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/json_out.h"
#include "plan/json_text.h"
#include "plan/plan_json.h"
#include "plan/plan_words.h"

namespace meron {
namespace {

// Ordered as the table.
JsonOut row_json(const Row& row, std::string_view dtype) {
  return JsonOut::object(
      {{"sharding", name_of(row.sharding)}, {"tier", name_of(row.tier)}, {"dtype", dtype}});
}

JsonOut codec_json(const Codec& codec) {
  if (codec == Codec{.kind = codec.kind}) return name_of(codec.kind);
  return JsonOut::object(
      {{"kind", name_of(codec.kind)},
       {"block", codec.block},
       {"rounding", codec.stochastic ? "stochastic" : "nearest"},
       {"hadamard", codec.hadamard},
       {"feedback", codec.feedback ? JsonOut::object({{"beta", codec.feedback_beta},
                                                      {"reset", codec.feedback_reset}})
                                   : JsonOut(false)},
       {"difference", codec.difference},
       {"error_limit", codec.error_limit}});
}

JsonOut mesh_json(const Mesh& mesh) {
  if (mesh.shard == Mesh::kAll) return JsonOut::object({{"shard", "all"}});
  if (mesh.shard == Mesh::kNode) return JsonOut::object({{"shard", "node"}});
  return JsonOut::object({{"shard", mesh.shard}});
}

JsonOut param_json(const ParamRow& row) {
  JsonOut out = row_json(row, "registered");
  out.add("frozen", row.frozen_int8 ? "int8" : "registered");
  out.add("secondary_partition", row.secondary_partition ? "shard" : "none");
  out.add("codec", codec_json(row.codec));
  if (row.tier == Tier::nvme) out.add("resident", row.resident).add("buffers", row.buffers);
  if (row.gather_window > 0) out.add("gather_window", row.gather_window);
  if (row.register_values) out.add("register_values", true);
  return out;
}

JsonOut optimizer_json(const OptimizerRow& row) {
  JsonOut out = row_json(row, name_of(row.dtype));
  if (row.tier != Tier::nvme) return out;
  out.add("fraction", row.fraction).add("sub_group", row.sub_group).add("buffers", row.buffers);
  return out;
}

JsonOut nvme_json(const Nvme& nvme) {
  JsonOut out = JsonOut::object({{"path", nvme.path},
                                 {"block", nvme.block},
                                 {"depth", nvme.depth},
                                 {"threads", nvme.threads}});
  const NvmeRates& rates = nvme.rates;
  if (!rates.known()) return out;
  out.add("rates", JsonOut::object({{"read", rates.read},
                                    {"write", rates.write},
                                    {"both", rates.both},
                                    {"update", rates.update}}));
  return out;
}

// The values of a plan's text and their keys, in its order: "param.dtype", "\"f32\"".
using FlatPlan = std::vector<std::pair<std::string, std::string>>;

std::string scalar_text(const JsonValue& value) {
  if (const auto text = value.string(); text.ok()) return json_string(*text);
  if (const auto count = value.count(0, UINT64_MAX); count.ok()) return fmt::format("{}", *count);
  if (const auto number = value.number(); number.ok()) return JsonOut(*number).dump(-1);
  if (const auto boolean = value.boolean(); boolean.ok()) return *boolean ? "true" : "false";
  return "null";
}

void flatten(const JsonValue& object, const std::string& before, FlatPlan* out) {
  for (auto value = object.first(); value; value = value->next()) {
    const std::string key = before + std::string(value->key());
    if (value->object().ok()) {
      flatten(*value, key + ".", out);
    } else {
      out->emplace_back(key, scalar_text(*value));
    }
  }
}

// Nothing of a text that is no plan.
FlatPlan flat_plan(std::string_view text) {
  FlatPlan out;
  const auto parsed = JsonText::parse(text, "plan", {.bytes = 1 << 20, .depth = 16});
  if (parsed.ok() && parsed->root().object().ok()) flatten(parsed->root(), "", &out);
  return out;
}

const std::string* value_of(const FlatPlan& plan, std::string_view key) {
  for (const auto& [each, value] : plan) {
    if (each == key) return &value;
  }
  return nullptr;
}

}  // namespace

std::string to_json(const Plan& plan, int indent) {
  JsonOut gradient = row_json(plan.gradient, dtype_word(plan.gradient));
  gradient.add("codec", codec_json(plan.gradient.codec));
  JsonOut out = JsonOut::object({{"name", plan.name},
                                 {"mesh", mesh_json(plan.mesh)},
                                 {"param", param_json(plan.param)},
                                 {"gradient", gradient},
                                 {"optimizer", optimizer_json(plan.optimizer)},
                                 {"gradient_buckets", plan.gradient.buckets}});
  if (!plan.nvme.path.empty()) out.add("nvme", nvme_json(plan.nvme));
  return out.dump(indent);
}

std::string plan_difference(std::string_view a, std::string_view b) {
  const FlatPlan first = flat_plan(a), second = flat_plan(b);
  std::string out;
  const auto add = [&](const std::string& key) {
    const std::string *const in_first = value_of(first, key), *const in_second =
                                                                  value_of(second, key);
    if (in_first != nullptr && in_second != nullptr && *in_first == *in_second) return;
    out += fmt::format("{}{}: {} and {}", out.empty() ? "" : "; ", key,
                       in_first != nullptr ? *in_first : "nothing",
                       in_second != nullptr ? *in_second : "nothing");
  };
  for (const auto& each : first) add(each.first);
  for (const auto& each : second) {
    if (value_of(first, each.first) == nullptr) add(each.first);
  }
  return out;
}

}  // namespace meron
