// SPDX-License-Identifier: Apache-2.0
// A plan as JSON text, both ways. Reading is strict: an unknown or repeated key, a value of the
// wrong type or one that is not offered is an error with line and key.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/plan.h"

namespace meron {

inline constexpr size_t kMaxPlanText = size_t{1} << 20;  // bytes

// All keys are optional:
//
//   { "preset": "zero2",                      what the other keys start from; else zero0
//     "name": "mine",
//     "param":     { "sharding": "none" | "shard", "tier": "host", "dtype": "registered",
//                    "codec": "none" },
//     "gradient":  { "sharding": ..., "tier": "host", "codec": "none",
//                    "dtype": "param" | "f32" | "bf16" | "f16" },
//     "optimizer": { "sharding": ..., "tier": "host", "dtype": "f32" },
//     "gradient_buckets": 2 }
//
// A plan without a name is called after the preset whose table it has, otherwise "custom".
Result<Plan> parse_plan(std::string_view json);

// The whole table, every key written out. parse_plan(to_json(p)) == p for every valid plan, and
// equal plans give equal text, so ranks can compare it. indent < 0: one line.
std::string to_json(const Plan& plan, int indent = 2);

}  // namespace meron
