// SPDX-License-Identifier: Apache-2.0
// Names of element types in texts about models.
#pragma once

#include <array>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "plan/json_text.h"

namespace meron {

struct DTypeWord {
  std::string_view text;
  DType dtype;
};
// As Meron names them, and as PyTorch and its users do.
inline constexpr std::array kDTypeWords = {
    DTypeWord{"f32", DType::f32},       DTypeWord{"bf16", DType::bf16},
    DTypeWord{"f16", DType::f16},       DTypeWord{"float32", DType::f32},
    DTypeWord{"fp32", DType::f32},      DTypeWord{"float", DType::f32},
    DTypeWord{"bfloat16", DType::bf16}, DTypeWord{"float16", DType::f16},
    DTypeWord{"fp16", DType::f16},      DTypeWord{"half", DType::f16}};

// One of the words above; the error names the three of Meron.
Result<DType> read_dtype(JsonValue value);

}  // namespace meron
