// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "meron/base.h"

namespace meron {

enum class DType : int32_t { f32 = MERON_F32, bf16 = MERON_BF16, f16 = MERON_F16 };

constexpr bool valid_dtype(meron_dtype value) {
  return value >= MERON_F32 && value <= MERON_F16;
}
constexpr size_t size_of(DType type) {
  return type == DType::f32 ? 4 : 2;
}
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
  }
  return "?";
}

}  // namespace meron
