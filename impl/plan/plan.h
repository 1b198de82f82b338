// SPDX-License-Identifier: Apache-2.0
// The plan: one row per kind of state that says over which ranks it is cut, where it lies, in which
// dtype, and how it travels. What other systems call a stage or a strategy is a filled-in table.
// A Plan is a value: pure data, comparable, printable (table.h), parsed (plan_json.h), and the
// input of the prediction (predict.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"

namespace meron {

enum class Sharding : uint8_t {
  none,   // every rank holds the whole
  shard,  // cut over all ranks: see shard_range() in base/layout.h
};
enum class Tier : uint8_t { host };
enum class Codec : uint8_t { none };

constexpr std::string_view name_of(Sharding value) {
  return value == Sharding::none ? "none" : "shard";
}
constexpr std::string_view name_of(Tier) {
  return "host";
}
constexpr std::string_view name_of(Codec) {
  return "none";
}

struct Row {
  Sharding sharding = Sharding::none;
  Tier tier = Tier::host;
  std::optional<DType> dtype;  // empty: the dtype that the parameter was registered with
  Codec codec = Codec::none;   // how it is encoded on the wire; has no meaning for the optimizer

  bool operator==(const Row&) const = default;
};

inline constexpr uint32_t kMaxGradientBuckets = 64;
inline constexpr size_t kMaxPlanName = 64;  // bytes

struct Plan {
  std::string name = "zero0";
  Row param;                              // at rest, between gathers; dtype is always empty
  Row gradient;                           // accumulated; dtype empty: as the parameter
  Row optimizer = {.dtype = DType::f32};  // moments and, for 16-bit parameters, the f32 master
  uint32_t gradient_buckets = 2;          // sharded gradients: how many buffers the ring has

  bool operator==(const Plan&) const = default;
};

// The dtype in which the gradient of a parameter of dtype `param` is accumulated.
constexpr DType gradient_dtype(const Plan& plan, DType param) {
  return plan.gradient.dtype.value_or(param);
}
constexpr bool is_sharded(const Row& row) {
  return row.sharding == Sharding::shard;
}

inline constexpr std::array<std::string_view, 4> kPresetNames = {"zero0", "zero1", "zero2",
                                                                 "zero3"};

// zero0 cuts nothing, zero1 the optimizer, zero2 also the gradients, zero3 also the parameters.
Result<Plan> preset(std::string_view name);

// 1 to kMaxPlanName bytes of valid UTF-8 without control characters.
Status check_plan_name(std::string_view name);

// Refuses tables that contradict themselves or that are not offered. Everything that takes a Plan
// expects one that passed; preset() and parse_plan() only return such plans.
Status validate(const Plan& plan);

}  // namespace meron
