// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <fmt/format.h>

#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron {
Result<Plan> preset(std::string_view name) {
  Plan plan;
  for (size_t stage = 0; stage < kPresetNames.size(); ++stage) {
    if (name != kPresetNames[stage]) continue;
    plan.name = name;
    if (stage >= 1) plan.optimizer.sharding = Sharding::shard;
    if (stage >= 2) plan.gradient.sharding = Sharding::shard;
    if (stage >= 3) plan.param.sharding = Sharding::shard;
    return plan;
  }
  return Error(MERON_E_ARGUMENT, fmt::format("{} is not the name of a preset", in_quotes(name)),
               suggestion(name, "presets", kPresetNames))
      .on("plan");
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
  if (plan.optimizer.dtype != DType::f32) {
    return Error(MERON_E_UNSUPPORTED, "optimizer states are f32 in this version",
                 "set the optimizer's dtype to f32")
        .on("plan");
  }
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
  return Ok{};
}

}  // namespace meron
