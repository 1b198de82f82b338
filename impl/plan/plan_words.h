// SPDX-License-Identifier: Apache-2.0
// The words of a plan's JSON text and their values. Internal to this folder.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "plan/plan.h"

namespace meron {

template <class T>
struct Word {
  std::string_view text;
  T value;
};

inline constexpr std::array kShardings = {Word<Sharding>{"none", Sharding::none},
                                          Word<Sharding>{"shard", Sharding::shard},
                                          Word<Sharding>{"replica x shard", Sharding::world}};
inline constexpr std::array kTiers = {Word<Tier>{"host", Tier::host},
                                      Word<Tier>{"nvme", Tier::nvme},
                                      Word<Tier>{"device", Tier::device}};
inline constexpr std::array kCodecs = {
    Word<CodecKind>{"none", CodecKind::none}, Word<CodecKind>{"bf16", CodecKind::bf16},
    Word<CodecKind>{"int8", CodecKind::int8}, Word<CodecKind>{"int4", CodecKind::int4}};
inline constexpr std::array kRoundings = {Word<bool>{"nearest", false},
                                          Word<bool>{"stochastic", true}};
inline constexpr std::array kFrozen = {Word<bool>{"registered", false}, Word<bool>{"int8", true}};
inline constexpr std::array kSecondaryPartitions = {Word<bool>{"none", false},
                                                    Word<bool>{"shard", true}};

using MaybeDType = std::optional<DType>;
inline constexpr std::array kParamDTypes = {Word<MaybeDType>{"registered", std::nullopt}};
struct GradientDType {
  MaybeDType dtype;
  bool rounds = false;

  bool operator==(const GradientDType&) const = default;
};
inline constexpr std::array kGradientDTypes = {
    Word<GradientDType>{"auto", {}}, Word<GradientDType>{"param", {std::nullopt, true}},
    Word<GradientDType>{"f32", {DType::f32}}, Word<GradientDType>{"bf16", {DType::bf16}},
    Word<GradientDType>{"f16", {DType::f16}}};
inline constexpr std::array kStateDTypes = {Word<StateDType>{"f32", StateDType::f32},
                                            Word<StateDType>{"bf16", StateDType::bf16},
                                            Word<StateDType>{"int8", StateDType::int8}};

inline std::string_view dtype_word(const GradientRow& row) {
  for (const auto& word : kGradientDTypes) {
    if (word.value == GradientDType{row.dtype, row.rounds}) return word.text;
  }
  return "?";
}

}  // namespace meron
