// SPDX-License-Identifier: Apache-2.0
// What a valid plan is.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <utility>

#include "plan/plan.h"
#include "plan/predict.h"
#include "plan/unit_layout.h"

namespace meron {
namespace {

enum class CodecOf { param, gradient };

Status check_codec(const Codec& codec, CodecOf which) {
  const std::string_view owner = which == CodecOf::param ? "parameters" : "gradients";
  const auto refuse = [&](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, fmt::format("the codec of the {}: {}", owner, what), advice)
        .on("plan");
  };
  if (codec.block < kLeastCodecBlock || codec.block > kMostCodecBlock ||
      !std::has_single_bit(codec.block)) {
    return refuse(fmt::format("block is {}", codec.block), "give a power of two from 64 to 2048");
  }
  if (!codec.blocked() &&
      (codec.stochastic || codec.hadamard || codec.feedback || codec.difference)) {
    return refuse(fmt::format("{} has no blocks", name_of(codec.kind)),
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
    return refuse("error_limit has no codec to replace", "give it with int8 or int4");
  }
  if (!codec.feedback && (codec.feedback_beta != 0.0 || codec.feedback_reset != 0)) {
    return refuse("beta and reset need feedback, which is off", "set feedback too");
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

// Parameters on nvme or on the device: each rank stores the values that it updates.
Status check_param_tier(const Plan& plan) {
  const auto refuse = [](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), advice).on("plan");
  };
  const Plan plain;
  if (plan.param.tier != Tier::nvme &&
      (plan.param.resident != plain.param.resident || plan.param.buffers != plain.param.buffers)) {
    return refuse("resident and buffers need parameters on tier nvme, and these are on another",
                  "set their tier to \"nvme\", or leave them out");
  }
  if (plan.param.tier == Tier::host) return Ok{};
  const auto refuse_tier = [&](const char* what, const char* advice) {
    return refuse(fmt::format(fmt::runtime(what), name_of(plan.param.tier)), advice);
  };
  if (!is_sharded(plan.param)) {
    return refuse_tier(
        "parameters on tier {} are not sharded",
        plan.param.tier == Tier::device
            ? "shard them, as zero3 does; over a mesh of one rank, {\"shard\": 1}, each "
              "rank holds all of them"
            : "shard them, as zero3 does: each rank then stores its own shard");
  }
  // Shards that replicas hold alike are refreshed by device collectives.
  const bool replicated_shards = plan.param.tier == Tier::device &&
                                 plan.param.sharding == Sharding::shard &&
                                 plan.optimizer.sharding == Sharding::world;
  if (plan.param.sharding != plan.optimizer.sharding && !replicated_shards) {
    return refuse_tier("parameters on tier {} are not sharded as the optimizer is",
                       "give param and optimizer the same sharding");
  }
  if (plan.param.secondary_partition && plan.param.tier == Tier::nvme) {
    return refuse_tier(
        "secondary_partition (of hpZ) keeps parameters in memory, and their tier "
        "is {}",
        "leave secondary_partition out, or the tier");
  }
  const Codec& codec = plan.param.codec;
  if (codec.kind != CodecKind::none && plan.param.tier == Tier::nvme) {
    return refuse_tier("the codec of the parameters keeps them in memory, and their tier is {}",
                       "leave the codec out, or the tier");
  }
  if (codec.kind != CodecKind::none && plan.param.sharding != Sharding::world) {
    return refuse_tier("the codec of parameters on tier {} needs them sharded over replicas too",
                       "set the sharding of param to \"replica x shard\", or leave the codec out");
  }
  if (codec.difference || codec.error_limit > 0.0) {
    return refuse_tier(
        "the codec of parameters on tier {} has difference or error_limit, which only the host "
        "supports",
        "leave them out, or the tier");
  }
  if (plan.param.resident > kMostSubGroup) {
    return refuse("resident is more than any memory holds", "give at most 2^40 elements");
  }
  if (plan.param.buffers < kLeastParamBuffers || plan.param.buffers > kMostParamBuffers) {
    return refuse("the number of buffers of the parameters is outside 1 to 1024",
                  "give 2 or more: one unit is written while the next one changes");
  }
  return Ok{};
}

// Gradient sums and optimizer states on the device, which then updates them itself.
Status check_device_tier(const Plan& plan) {
  const auto refuse = [](const char* what, const char* advice) {
    return Error(MERON_E_ARGUMENT, what, advice).on("plan");
  };
  const bool gradient = plan.gradient.tier == Tier::device;
  if (gradient != (plan.optimizer.tier == Tier::device)) {
    return refuse("one of gradient and optimizer has tier device, and the other has not",
                  "give both the tier: the update reads the sums");
  }
  if (plan.param.tier == Tier::device && plan.param.frozen_int8) {
    return refuse("frozen parameters in int8 need the host, and their tier is device",
                  "leave \"frozen\" out, or the tier");
  }
  if (!gradient) return Ok{};
  if (plan.param.tier != Tier::device) {
    return refuse(
        "the optimizer has tier device, and the parameters have not",
        "give all three entries the tier; or leave the optimizer on the host, which updates "
        "parameters on either");
  }
  const bool sharded = is_sharded(plan.gradient) && (plan.gradient.sharding == Sharding::shard ||
                                                     plan.optimizer.sharding == Sharding::world);
  if (!sharded) {
    return refuse("gradients on the device are not sharded, or over more ranks than the optimizer",
                  "give all entries the same sharding, as zero3 does");
  }
  if (plan.gradient.codec.error_limit > 0.0) {
    return refuse(
        "the codec of gradients on the device has an error_limit, which only the host checks",
        "leave it out, or the tier");
  }
  if (plan.optimizer.dtype == StateDType::int8) {
    return refuse("states in int8 need tier host or nvme, and the optimizer's tier is device",
                  "take f32 or bf16 states, or another tier");
  }
  return Ok{};
}

// Checks the tiers of the entries, and the settings that depend on them.
Status check_tiers(const Plan& plan) {
  const auto refuse = [](std::string what, const char* advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), advice).on("plan");
  };
  MERON_TRY(check_nvme(plan.nvme));
  if (plan.gradient.tier == Tier::nvme) {
    return Error(MERON_E_UNSUPPORTED, "gradients on tier nvme are not offered",
                 "leave them on the host: they are used in place, right after they are summed")
        .on("plan");
  }
  const bool uses = plan.optimizer.tier == Tier::nvme || plan.param.tier == Tier::nvme;
  if (uses && plan.nvme.path.empty()) {
    return refuse("an entry has tier nvme, and the plan names no folder for it",
                  "give \"nvme\": {\"path\": \"/folder/on/the/drive\"}");
  }
  if (!uses && plan.nvme != Nvme{}) {
    return refuse("the plan describes tier nvme, and no entry has that tier",
                  "set the tier of optimizer or param to \"nvme\", or leave nvme out");
  }
  MERON_TRY(check_param_tier(plan));
  MERON_TRY(check_device_tier(plan));
  if (plan.param.tier != Tier::device &&
      (plan.param.gather_window > 0 || plan.param.register_values)) {
    return refuse(
        "gather_window and register_values need parameters on tier device, and these are on "
        "another",
        "set their tier to \"device\", or leave them out");
  }
  if (plan.param.gather_window > kMostGatherWindow) {
    return refuse(fmt::format("gather_window is {} bytes", plan.param.gather_window),
                  "give at most 2^50, or 0 for none");
  }
  if (!(plan.optimizer.fraction > 0.0 && plan.optimizer.fraction <= 1.0)) {
    return refuse(fmt::format("the optimizer's fraction on nvme is {}", plan.optimizer.fraction),
                  "give a number above 0 and at most 1; for none of it, tier host");
  }
  const Plan plain;
  if (plan.optimizer.tier != Tier::nvme && (plan.optimizer.fraction != plain.optimizer.fraction ||
                                            plan.optimizer.sub_group != plain.optimizer.sub_group ||
                                            plan.optimizer.buffers != plain.optimizer.buffers)) {
    return refuse(
        "fraction, sub_group and buffers need an optimizer on tier nvme, and this one "
        "is on another",
        "set its tier to \"nvme\", or leave them out");
  }
  if (plan.optimizer.sub_group < kLeastSubGroup || plan.optimizer.sub_group > kMostSubGroup ||
      plan.optimizer.sub_group % kLeastSubGroup != 0) {
    return refuse(fmt::format("sub_group is {}", plan.optimizer.sub_group),
                  "give a multiple of 4096 elements");
  }
  if (plan.optimizer.buffers < kLeastStateBuffers || plan.optimizer.buffers > kMostStateBuffers) {
    return refuse(fmt::format("the optimizer has {} buffers", plan.optimizer.buffers),
                  "give 2 to 1024: with 3 or more it reads, updates and writes at the same time");
  }
  return Ok{};
}

// Checks the mesh, and the settings that need a mesh with replicas.
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
  for (const auto& [entry, name] :
       std::initializer_list<std::pair<const Row*, const char*>>{{&plan.param, "parameters"},
                                                                 {&plan.gradient, "gradients"},
                                                                 {&plan.optimizer, "optimizer"}}) {
    if (!replicas && entry->sharding == Sharding::world) {
      return refuse(fmt::format("{} are sharded over replicas, but the plan has no mesh", name),
                    kGiveMesh);
    }
    if (!replicas && entry->codec.kind != CodecKind::none) {
      return refuse(fmt::format("{} have a codec, which is for transfers between replicas, but the "
                                "plan has no mesh",
                                name),
                    kGiveMesh);
    }
  }
  if (replicas && !is_sharded(plan.optimizer)) {
    return refuse("the plan has a mesh, but its optimizer is not sharded",
                  "shard the optimizer, or leave the mesh out");
  }
  const auto wider = [](const Row& a, const Row& b) { return a.sharding > b.sharding; };
  if (wider(plan.param, plan.optimizer) || wider(plan.gradient, plan.optimizer)) {
    return refuse(fmt::format("{} are sharded over more ranks than the optimizer",
                              wider(plan.param, plan.optimizer) ? "parameters" : "gradients"),
                  "let the optimizer have \"replica x shard\" too");
  }
  if (plan.param.secondary_partition && plan.param.sharding != Sharding::world) {
    return refuse(
        "secondary_partition (of hpZ) needs parameters sharded over replicas too",
        "set the sharding of param to \"replica x shard\", or leave secondary_partition out");
  }
  const bool params_travel =
      plan.param.sharding == Sharding::world ||
      (plan.param.sharding == Sharding::shard && plan.optimizer.sharding == Sharding::world);
  if (plan.param.frozen_int8 &&
      (plan.param.sharding == Sharding::none || plan.param.sharding != plan.optimizer.sharding)) {
    return refuse("frozen parameters are int8, but parameters are not sharded as the optimizer is",
                  "give param and optimizer the same sharding, and not none");
  }
  if (plan.param.codec.kind != CodecKind::none && !params_travel) {
    return refuse("parameters have a codec, but are not sent between replicas",
                  "leave it out, or shard parameters or optimizer over \"replica x shard\"");
  }
  // Under sharding `shard` the values stay, so a difference has a base.
  if (plan.param.codec.difference && plan.param.sharding == Sharding::world &&
      !plan.param.secondary_partition) {
    return refuse(
        "the codec of the parameters: a difference needs the values before, which this plan drops "
        "after each gather",
        "set \"secondary_partition\" of param to \"shard\", or the sharding of param to \"shard\", "
        "or "
        "leave difference out");
  }
  return Ok{};
}

}  // namespace

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
  MERON_TRY(check_tiers(plan));
  if (plan.gradient.buckets < 1 || plan.gradient.buckets > kMaxGradientBuckets) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("gradient_buckets is {}, outside 1 to {}", plan.gradient.buckets,
                             kMaxGradientBuckets),
                 "2 is enough to reduce one unit while the next one's gradients are written")
        .on("plan");
  }
  if (!is_sharded(plan.optimizer)) {
    if (is_sharded(plan.gradient)) {
      return Error(MERON_E_ARGUMENT,
                   "gradients are sharded but the optimizer is not: it would update every element "
                   "on every rank and so need the full gradient",
                   "shard the optimizer too, or do not shard the gradients")
          .on("plan");
    }
    if (is_sharded(plan.param)) {
      return Error(MERON_E_ARGUMENT,
                   "parameters are sharded but the optimizer is not: it would update every element "
                   "on every rank and so need the full parameters",
                   "shard the optimizer too, or do not shard the parameters")
          .on("plan");
    }
  }
  MERON_TRY(check_codec(plan.param.codec, CodecOf::param));
  MERON_TRY(check_codec(plan.gradient.codec, CodecOf::gradient));
  return check_mesh(plan);
}

}  // namespace meron
