// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "plan/predict.h"
#include "plan/strategies.h"
#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron {
namespace {

// What LoCo's authors found to keep the loss (arXiv 2407.04480), and DeepSpeed's default.
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
    return Error(MERON_E_ARGUMENT, fmt::format("{} is no size of a shard axis", in_quotes(word)),
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

enum class CodecOf { param, gradient };

Status check_codec(const Codec& codec, CodecOf which) {
  const std::string_view row = which == CodecOf::param ? "parameters" : "gradients";
  const auto refuse = [&](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, fmt::format("the codec of the {}: {}", row, what), advice)
        .on("plan");
  };
  if (codec.block < kLeastCodecBlock || codec.block > kMostCodecBlock ||
      !std::has_single_bit(codec.block)) {
    return refuse(fmt::format("block is {}", codec.block), "give a power of two from 64 to 2048");
  }
  if (!codec.blocked() &&
      (codec.stochastic || codec.hadamard || codec.feedback || codec.difference)) {
    return refuse(fmt::format("{} rounds no blocks", name_of(codec.kind)),
                  "give rounding, hadamard, feedback and difference with int8 or int4 only");
  }
  if (codec.feedback && which == CodecOf::param) {
    return refuse("feedback is for gradients", "leave it out: for parameters there is difference");
  }
  if (codec.difference && which == CodecOf::gradient) {
    return refuse("difference is for parameters", "leave it out: for gradients there is feedback");
  }
  if (!(codec.feedback_beta >= 0.0 && codec.feedback_beta < 1.0)) {
    return refuse(fmt::format("beta is {}", codec.feedback_beta), "give 0 <= beta < 1");
  }
  if (codec.feedback_reset > kMaxFeedbackReset) {
    return refuse(fmt::format("reset is {}", codec.feedback_reset), "give at most 2^30");
  }
  if (!(codec.error_limit >= 0.0) || !std::isfinite(codec.error_limit)) {
    return refuse(fmt::format("error_limit is {}", codec.error_limit),
                  "give a finite number, 0 for no limit");
  }
  if (codec.error_limit > 0.0 && !codec.blocked()) {
    return refuse("error_limit has nothing to go back from", "give it with int8 or int4");
  }
  if (!codec.feedback && (codec.feedback_beta != 0.0 || codec.feedback_reset != 0)) {
    return refuse("beta and reset are of feedback, which is not asked for", "set feedback too");
  }
  return Ok{};
}

Status check_nvme(const Nvme& nvme) {
  const auto refuse = [](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), advice).on("plan");
  };
  if (nvme.path.size() > kMaxNvmePath || nvme.path.find('\0') != std::string::npos) {
    return refuse("the path of nvme is no path", "give a folder on the drive that is to be used");
  }
  if (nvme.block < Nvme::kLeastBlock || nvme.block > Nvme::kMostBlock || nvme.block % kPage != 0) {
    return refuse(fmt::format("block of nvme is {}", nvme.block),
                  "give a multiple of 4096 from 4096 to 64 Mi; `meron io-bench` finds the best");
  }
  if (nvme.depth < 1 || nvme.depth > Nvme::kMostDepth) {
    return refuse(fmt::format("depth of nvme is {}", nvme.depth), "give 1 to 4096 requests");
  }
  if (nvme.rates != NvmeRates{} && !nvme.rates.known()) {
    return refuse("the rates of nvme are not complete",
                  "give read, write, both and update, as `meron io-bench --save` writes them");
  }
  if (nvme.threads < 1 || nvme.threads > Nvme::kMostThreads) {
    return refuse(fmt::format("threads of nvme is {}", nvme.threads), "give 1 to 64");
  }
  return Ok{};
}

// Parameters on nvme or on the device: the rank that updates values is the one that stores them.
Status check_param_tier(const Plan& plan) {
  const auto refuse = [](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), advice).on("plan");
  };
  const Plan plain;
  if (plan.param.tier != Tier::nvme &&
      (plan.resident != plain.resident || plan.param_buffers != plain.param_buffers)) {
    return refuse("resident and buffers are of parameters on tier nvme, and these are not there",
                  "set their tier to \"nvme\", or leave them out");
  }
  if (plan.param.tier == Tier::host) return Ok{};
  const auto refuse_tier = [&](const char* what, const char* advice) {
    return refuse(fmt::format(fmt::runtime(what), name_of(plan.param.tier)), advice);
  };
  if (!is_sharded(plan.param)) {
    return refuse_tier(
        "parameters on tier {} are whole on every rank",
        plan.param.tier == Tier::device
            ? "shard them, as zero3 does; over a mesh of one rank, {\"shard\": 1}, each "
              "rank holds all of them"
            : "shard them, as zero3 does: each rank then stores its own part");
  }
  // Devices bring rows that replicas hold alike together by themselves.
  const bool alike = plan.param.tier == Tier::device && plan.param.sharding == Sharding::shard &&
                     plan.optimizer.sharding == Sharding::world;
  if (plan.param.sharding != plan.optimizer.sharding && !alike) {
    return refuse_tier("parameters on tier {} are not cut as the optimizer is",
                       "give param and optimizer the same sharding");
  }
  if (plan.second_copy && plan.param.tier == Tier::nvme) {
    return refuse_tier("a second copy keeps parameters in memory, and their tier is {}",
                       "leave second_copy out, or the tier");
  }
  const Codec& codec = plan.param.codec;
  if (codec.kind != CodecKind::none && plan.param.tier == Tier::nvme) {
    return refuse_tier("the codec of the parameters keeps them in memory, and their tier is {}",
                       "leave the codec out, or the tier");
  }
  if (codec.kind != CodecKind::none && plan.param.sharding != Sharding::world) {
    return refuse_tier(
        "the codec of parameters on tier {} is for those that are cut over replicas too",
        "set the sharding of param to \"replica x shard\", or leave the codec out");
  }
  if (codec.difference || codec.error_limit > 0.0) {
    return refuse_tier(
        "the codec of parameters on tier {} has difference or error_limit, which the host looks at",
        "leave them out, or the tier");
  }
  if (plan.resident > kMostSubGroup) {
    return refuse("resident is more than any memory holds", "give at most 2^40 elements");
  }
  if (plan.param_buffers < kLeastParamBuffers || plan.param_buffers > kMostParamBuffers) {
    return refuse("the number of buffers of the parameters is outside 1 to 1024",
                  "give 2 or more: one unit is written while the next one changes");
  }
  return Ok{};
}

// Sums and optimizer states on the device: the device updates what lies there.
Status check_device_tier(const Plan& plan) {
  const auto refuse = [](const char* what, const char* advice) {
    return Error(MERON_E_ARGUMENT, what, advice).on("plan");
  };
  const bool gradient = plan.gradient.tier == Tier::device;
  if (gradient != (plan.optimizer.tier == Tier::device)) {
    return refuse("one of gradient and optimizer lies on the device, and the other does not",
                  "give both the tier: who updates reads the sums");
  }
  if (plan.param.tier == Tier::device && plan.frozen_int8) {
    return refuse("frozen parameters in int8 lie on the host, and their tier is device",
                  "leave \"frozen\" out, or the tier");
  }
  if (!gradient) return Ok{};
  if (plan.param.tier != Tier::device) {
    return refuse("the optimizer lies on the device, and the parameters do not",
                  "give all three rows the tier; or leave the optimizer on the host, which updates "
                  "what lies on either");
  }
  const bool cut = is_sharded(plan.gradient) && (plan.gradient.sharding == Sharding::shard ||
                                                 plan.optimizer.sharding == Sharding::world);
  if (!cut) {
    return refuse("gradients on the device are not cut, or further than the optimizer",
                  "cut all rows alike, as zero3 does");
  }
  if (plan.gradient.codec.error_limit > 0.0) {
    return refuse(
        "the codec of gradients on the device has an error_limit, which the host looks at",
        "leave it out, or the tier");
  }
  if (plan.state_dtype == StateDType::int8) {
    return refuse("states in int8 lie on the host or on nvme, and the optimizer's tier is device",
                  "take f32 or bf16 states, or another tier");
  }
  return Ok{};
}

// What lies where, and what that contradicts.
Status check_tiers(const Plan& plan) {
  const auto refuse = [](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), advice).on("plan");
  };
  MERON_TRY(check_nvme(plan.nvme));
  if (plan.optimizer.dtype) {
    return refuse("the optimizer's row has a dtype of values", "set state_dtype of the plan");
  }
  if (plan.gradient.tier == Tier::nvme) {
    return Error(MERON_E_UNSUPPORTED, "gradients on tier nvme are not offered",
                 "leave them on the host: they are used in place, right after they are summed")
        .on("plan");
  }
  const bool uses = plan.optimizer.tier == Tier::nvme || plan.param.tier == Tier::nvme;
  if (uses && plan.nvme.path.empty()) {
    return refuse("a row has the tier nvme, and the plan names no folder for it",
                  "give \"nvme\": {\"path\": \"/folder/on/the/drive\"}");
  }
  if (!uses && plan.nvme != Nvme{}) {
    return refuse("the plan describes tier nvme, and no row has that tier",
                  "set the tier of optimizer or param to \"nvme\", or leave nvme out");
  }
  MERON_TRY(check_param_tier(plan));
  MERON_TRY(check_device_tier(plan));
  if (!(plan.nvme_fraction > 0.0 && plan.nvme_fraction <= 1.0)) {
    return refuse(fmt::format("the optimizer's fraction on nvme is {}", plan.nvme_fraction),
                  "give a number above 0 and at most 1; for none of it, tier host");
  }
  const Plan plain;
  if (plan.optimizer.tier != Tier::nvme &&
      (plan.nvme_fraction != plain.nvme_fraction || plan.sub_group != plain.sub_group ||
       plan.state_buffers != plain.state_buffers)) {
    return refuse(
        "fraction, sub_group and buffers are of an optimizer on tier nvme, and this one "
        "is not there",
        "set its tier to \"nvme\", or leave them out");
  }
  if (plan.sub_group < kLeastSubGroup || plan.sub_group > kMostSubGroup ||
      plan.sub_group % kLeastSubGroup != 0) {
    return refuse(fmt::format("sub_group is {}", plan.sub_group),
                  "give a multiple of 4096 elements");
  }
  if (plan.state_buffers < kLeastStateBuffers || plan.state_buffers > kMostStateBuffers) {
    return refuse(fmt::format("the optimizer has {} buffers", plan.state_buffers),
                  "give 2 to 1024: with 3 or more it reads, updates and writes at the same time");
  }
  return Ok{};
}

// What only a mesh with replicas gives a meaning.
Status check_mesh(const Plan& plan) {
  const bool replicas = plan.mesh.shard != Mesh::kAll;
  const auto refuse = [](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), advice).on("plan");
  };
  constexpr const char* kGiveMesh = "give the mesh, for example \"mesh\": {\"shard\": \"node\"}";
  if (replicas && plan.mesh.shard != Mesh::kNode && plan.mesh.shard > kMaxPlanRanks) {
    return refuse(fmt::format("the shard axis has {} ranks", plan.mesh.shard),
                  "give at most 65536, or \"node\"");
  }
  for (const auto& [row, name] :
       {std::pair{&plan.param, "parameters"}, std::pair{&plan.gradient, "gradients"},
        std::pair{&plan.optimizer, "optimizer"}}) {
    if (!replicas && row->sharding == Sharding::world) {
      return refuse(fmt::format("{} are cut over replicas, but the plan has no mesh", name),
                    kGiveMesh);
    }
    if (!replicas && row->codec.kind != CodecKind::none) {
      return refuse(fmt::format("{} have a codec, which is for the way between replicas, but the "
                                "plan has no mesh",
                                name),
                    kGiveMesh);
    }
  }
  if (replicas && !is_sharded(plan.optimizer)) {
    return refuse("the plan has a mesh, but its optimizer is whole on every rank",
                  "shard the optimizer, or leave the mesh out");
  }
  const auto wider = [](const Row& a, const Row& b) { return a.sharding > b.sharding; };
  if (wider(plan.param, plan.optimizer) || wider(plan.gradient, plan.optimizer)) {
    return refuse(fmt::format("{} are cut over more ranks than the optimizer",
                              wider(plan.param, plan.optimizer) ? "parameters" : "gradients"),
                  "let the optimizer have \"replica x shard\" too");
  }
  if (plan.second_copy && plan.param.sharding != Sharding::world) {
    return refuse("a second copy of the parameters is for those that are cut over replicas too",
                  "set the sharding of param to \"replica x shard\", or leave second_copy out");
  }
  const bool params_travel =
      plan.param.sharding == Sharding::world ||
      (plan.param.sharding == Sharding::shard && plan.optimizer.sharding == Sharding::world);
  if (plan.frozen_int8 &&
      (plan.param.sharding == Sharding::none || plan.param.sharding != plan.optimizer.sharding)) {
    return refuse("frozen parameters are int8, but parameters are not cut as the optimizer is",
                  "give param and optimizer the same sharding, and not none");
  }
  if (plan.param.codec.kind != CodecKind::none && !params_travel) {
    return refuse("parameters have a codec, but do not travel between replicas",
                  "leave it out, or cut parameters or optimizer over \"replica x shard\"");
  }
  // Parameters that are cut `shard` stay where they came.
  if (plan.param.codec.difference && plan.param.sharding == Sharding::world && !plan.second_copy) {
    return refuse(
        "the codec of the parameters: a difference is to the values before, which this plan drops "
        "after each gather",
        "set \"second_copy\" of param to \"shard\", or the sharding of param to \"shard\", or "
        "leave difference out");
  }
  return Ok{};
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
  plan.second_copy = true;
  if (call.name == "hpz") return plan;
  plan.param.codec.kind = CodecKind::int8;
  plan.gradient.codec = {.kind = CodecKind::int4,
                         .feedback = true,
                         .feedback_beta = kFeedbackBeta,
                         .feedback_reset = kFeedbackReset};
  return plan;
}

Status check_plan_name(std::string_view name) {
  if (Status valid = check_name(name); !valid) return std::move(valid).error().on("plan");
  if (name.size() > kMaxPlanName) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the name has {} bytes, more than the limit of {}", name.size(),
                             kMaxPlanName),
                 "give the plan a shorter name")
        .on("plan");
  }
  return Ok{};
}

Status validate(const Plan& plan) {
  MERON_TRY(check_plan_name(plan.name));
  if (plan.param.dtype) {
    return Error(MERON_E_UNSUPPORTED, "a dtype for parameters is not offered by this version",
                 "register the parameters in the dtype that they are to have")
        .on("plan");
  }
  MERON_TRY(check_tiers(plan));
  if (plan.gradient_buckets < 1 || plan.gradient_buckets > kMaxGradientBuckets) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("gradient_buckets is {}, outside 1 to {}", plan.gradient_buckets,
                             kMaxGradientBuckets),
                 "2 is enough to reduce one unit while the next one's gradients are written")
        .on("plan");
  }
  if (!is_sharded(plan.optimizer)) {
    if (is_sharded(plan.gradient)) {
      return Error(MERON_E_ARGUMENT,
                   "gradients are sharded but the optimizer is not: it would update every element "
                   "on every rank and so need the whole gradient",
                   "shard the optimizer too, or do not shard the gradients")
          .on("plan");
    }
    if (is_sharded(plan.param)) {
      return Error(MERON_E_ARGUMENT,
                   "parameters are sharded but the optimizer is not: it would update every element "
                   "on every rank and so need the whole parameters",
                   "shard the optimizer too, or do not shard the parameters")
          .on("plan");
    }
  }
  MERON_TRY(check_codec(plan.param.codec, CodecOf::param));
  MERON_TRY(check_codec(plan.gradient.codec, CodecOf::gradient));
  return check_mesh(plan);
}

Result<MeshShape> mesh_shape(const Plan& plan, uint32_t ranks, uint32_t node_ranks) {
  if (plan.mesh.shard == Mesh::kAll) return MeshShape{.shards = ranks};
  const bool by_node = plan.mesh.shard == Mesh::kNode;
  node_ranks = std::min(node_ranks, ranks);
  if (by_node && node_ranks == 0) {
    return Error(MERON_E_UNSUPPORTED,
                 fmt::format("plan '{}' has a mesh by nodes, whose numbers of ranks differ",
                             plan.name),
                 "start equally many ranks on every node, or give the shard axis as a number")
        .on("plan");
  }
  const uint32_t shards = by_node ? node_ranks : plan.mesh.shard;
  if (ranks % shards != 0) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("plan '{}' has a shard axis of {} ranks, which does not divide the {} "
                             "ranks of the group",
                             plan.name, shards, ranks),
                 "give a size that divides the number of ranks")
        .on("plan");
  }
  // Ranks of a node share memory: an axis that begins amid a node would share it by halves.
  if (node_ranks > 1 && shards % node_ranks != 0 && node_ranks % shards != 0) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("plan '{}' has a shard axis of {} ranks, and a node has {}", plan.name,
                             shards, node_ranks),
                 "give a size that divides, or is a multiple of, the ranks of a node")
        .on("plan");
  }
  if (node_ranks > 1 && ranks % node_ranks != 0) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("plan '{}' has a mesh of {} ranks, which do not fill nodes of {}",
                             plan.name, ranks, node_ranks),
                 "start equally many ranks on every node")
        .on("plan");
  }
  return MeshShape{.shards = shards, .replicas = ranks / shards};
}

}  // namespace meron
