// SPDX-License-Identifier: Apache-2.0
// A plan as JSON text: reading and writing. Reading is strict: an unknown or repeated key, a value
// of the wrong type or one that is not offered is an error with line and key.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/plan.h"

namespace meron {

inline constexpr size_t kMaxPlanText = size_t{1} << 20;  // bytes

// All keys are optional. secondary_partition is that of hpZ; its former key second_copy is read
// too.
//
//   { "preset": "zero2" | "mics(4)" | ...,    what the other keys start from; else zero0
//     "name": "mine",
//     "mesh":      { "shard": 4 | "node" | "all" },
//     "param":     { "sharding": "none" | "shard" | "replica x shard", "tier": "host",
//                    "dtype": "registered", "frozen": "registered" | "int8",
//                    "secondary_partition": "none" | "shard", "codec": CODEC },
//     "gradient":  { "sharding": ..., "tier": "host", "codec": CODEC,
//                    "dtype": "auto" | "param" | "f32" | "bf16" | "f16" },
//     "optimizer": { "sharding": ..., "tier": "host" | "nvme", "dtype": "f32" | "bf16" | "int8",
//                    "fraction": 1.0, "sub_group": 524288, "buffers": 8 },
//     "gradient_buckets": 2,
//     "nvme":      { "path": "/local", "block": 1048576, "depth": 32, "threads": 1 } }
//
// where a CODEC is "none", "bf16", "int8" or "int4", or
//
//   { "kind": "int8", "block": 256, "rounding": "nearest" | "stochastic", "hadamard": false,
//     "feedback": true | { "beta": 0.8, "reset": 1024 }, "difference": false,
//     "error_limit": 0.05 }
//
// A plan without a name is called after the preset whose table it has, otherwise "custom".
Result<Plan> parse_plan(std::string_view json);

// The full table, every key written out. parse_plan(to_json(p)) == p for every valid plan, and
// equal plans give equal text, so ranks can compare it. indent < 0: one line.
std::string to_json(const Plan& plan, int indent = 2);

// The differences between two texts of to_json(): `param.codec: "int8" and "none"; ...`.
std::string plan_difference(std::string_view a, std::string_view b);

}  // namespace meron
