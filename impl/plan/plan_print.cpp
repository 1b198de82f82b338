// SPDX-License-Identifier: Apache-2.0
// A plan as JSON text, and how two such texts differ.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "plan/plan_json.h"
#include "plan/plan_words.h"

namespace meron {
namespace {

using Json = nlohmann::ordered_json;

// Ordered as the table.
Json row_json(const Row& row, std::string_view dtype) {
  return {{"sharding", name_of(row.sharding)}, {"tier", name_of(row.tier)}, {"dtype", dtype}};
}

Json codec_json(const Codec& codec) {
  if (codec == Codec{.kind = codec.kind}) return name_of(codec.kind);
  Json out = {{"kind", name_of(codec.kind)},
              {"block", codec.block},
              {"rounding", codec.stochastic ? "stochastic" : "nearest"},
              {"hadamard", codec.hadamard}};
  out["feedback"] = false;
  if (codec.feedback) {
    out["feedback"] = {{"beta", codec.feedback_beta}, {"reset", codec.feedback_reset}};
  }
  out["difference"] = codec.difference;
  out["error_limit"] = codec.error_limit;
  return out;
}

Json mesh_json(const Mesh& mesh) {
  if (mesh.shard == Mesh::kAll) return {{"shard", "all"}};
  if (mesh.shard == Mesh::kNode) return {{"shard", "node"}};
  return {{"shard", mesh.shard}};
}

}  // namespace

std::string to_json(const Plan& plan, int indent) {
  Json param = row_json(plan.param, "registered");
  param["frozen"] = plan.param.frozen_int8 ? "int8" : "registered";
  param["second_copy"] = plan.param.second_copy ? "shard" : "none";
  param["codec"] = codec_json(plan.param.codec);
  if (plan.param.tier == Tier::nvme) {
    param["resident"] = plan.param.resident;
    param["buffers"] = plan.param.buffers;
  }
  if (plan.param.gather_window > 0) param["gather_window"] = plan.param.gather_window;
  if (plan.param.register_values) param["register_values"] = true;
  Json gradient = row_json(plan.gradient, dtype_word(kGradientDTypes, plan.gradient.dtype));
  gradient["codec"] = codec_json(plan.gradient.codec);
  Json optimizer = row_json(plan.optimizer, name_of(plan.optimizer.dtype));
  if (plan.optimizer.tier == Tier::nvme) {
    optimizer["fraction"] = plan.optimizer.fraction;
    optimizer["sub_group"] = plan.optimizer.sub_group;
    optimizer["buffers"] = plan.optimizer.buffers;
  }
  Json out = {{"name", plan.name},
              {"mesh", mesh_json(plan.mesh)},
              {"param", std::move(param)},
              {"gradient", std::move(gradient)},
              {"optimizer", std::move(optimizer)},
              {"gradient_buckets", plan.gradient.buckets}};
  if (!plan.nvme.path.empty()) {
    out["nvme"] = {{"path", plan.nvme.path},
                   {"block", plan.nvme.block},
                   {"depth", plan.nvme.depth},
                   {"threads", plan.nvme.threads}};
    const NvmeRates& rates = plan.nvme.rates;
    if (rates.known()) {
      out["nvme"]["rates"] = {{"read", rates.read},
                              {"write", rates.write},
                              {"both", rates.both},
                              {"update", rates.update}};
    }
  }
  return out.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string plan_difference(std::string_view a, std::string_view b) {
  const auto flat = [](std::string_view text) {
    const Json parsed = Json::parse(text, nullptr, false);
    return parsed.is_object() ? parsed.flatten() : Json::object();
  };
  const Json first = flat(a), second = flat(b);
  const auto shown = [](const Json& plan, const std::string& key) {
    const auto value = plan.find(key);
    return value == plan.end() ? std::string("nothing") : value->dump();
  };
  std::vector<std::string> keys;
  for (const Json* plan : {&first, &second}) {
    for (const auto& [key, value] : plan->items()) {
      if (shown(first, key) == shown(second, key)) continue;
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::string out;
  for (const std::string& key : keys) {
    std::string dotted = key.substr(1);
    std::replace(dotted.begin(), dotted.end(), '/', '.');
    out += fmt::format("{}{}: {} and {}", out.empty() ? "" : "; ", dotted, shown(first, key),
                       shown(second, key));
  }
  return out;
}

}  // namespace meron
