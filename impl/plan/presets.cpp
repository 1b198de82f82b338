// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "plan/hybrids.h"
#include "plan/predict.h"
#include "plan/text.h"

namespace meron {
namespace {

// LoCo's values (arXiv 2407.04480), which are DeepSpeed's defaults.
constexpr double kFeedbackBeta = 0.8;
constexpr uint32_t kFeedbackReset = 1024;

Error unknown_preset(std::string_view name) {
  return Error(MERON_E_ARGUMENT, fmt::format("{} is not the name of a preset", in_quotes(name)),
               suggestion(name, "presets", kPresetNames))
      .on("plan");
}

struct PresetCall {
  std::string_view name;
  std::optional<uint32_t> shard;
};

// "mics(4)", "hpz(node)", "zero3".
Result<PresetCall> split(std::string_view text) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos) return PresetCall{text, {}};
  if (!text.ends_with(')')) return unknown_preset(text);
  const std::string_view word = text.substr(open + 1, text.size() - open - 2);
  if (word == "node") return PresetCall{text.substr(0, open), Mesh::kNode};
  uint32_t shard = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), shard);
  if (code != std::errc{} || end != word.data() + word.size() || shard == 0 ||
      shard > kMaxPlanRanks) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} is not the size of a shard axis", in_quotes(word)),
                 fmt::format("give a number of ranks from 1 to {}, or node", kMaxPlanRanks))
        .on("plan");
  }
  return PresetCall{text.substr(0, open), shard};
}

Plan stage(size_t stage, Sharding sharding) {
  Plan plan;
  if (stage >= 1) plan.optimizer.sharding = sharding;
  if (stage >= 2) plan.gradient.sharding = sharding;
  if (stage >= 3) plan.param.sharding = sharding;
  return plan;
}

}  // namespace

Result<Plan> preset(std::string_view text) {
  if (std::optional<Result<Plan>> found = hybrid(text)) return *std::move(found);
  MERON_ASSIGN(const PresetCall call, split(text));
  Plan plan;
  constexpr size_t kStages = 4;
  const auto known = std::find(kPresetNames.begin(), kPresetNames.end(), call.name);
  if (known == kPresetNames.end()) return unknown_preset(text);
  const size_t index = static_cast<size_t>(known - kPresetNames.begin());
  if (index < kStages) {
    if (call.shard) {
      return Error(MERON_E_ARGUMENT, fmt::format("preset {} takes no argument", call.name),
                   "a mesh is given by the plan's key \"mesh\"")
          .on("plan");
    }
    plan = stage(index, Sharding::shard);
    plan.name = text;
    return plan;
  }
  plan = stage(3, call.name == "mics" ? Sharding::shard : Sharding::world);
  plan.name = text;
  plan.mesh.shard = call.shard.value_or(Mesh::kNode);
  if (call.name == "mics") return plan;
  plan.param.secondary_partition = true;
  if (call.name == "hpz") return plan;
  plan.param.codec.kind = CodecKind::int8;
  plan.gradient.codec = {.kind = CodecKind::int4,
                         .feedback = true,
                         .feedback_beta = kFeedbackBeta,
                         .feedback_reset = kFeedbackReset};
  return plan;
}

}  // namespace meron
