// SPDX-License-Identifier: Apache-2.0
// The config.json of a Hugging Face model, from which the shapes of its tensors follow. Internal to
// this folder.
#pragma once

#include <array>
#include <string_view>

#include "base/dtype.h"
#include "plan/json_text.h"
#include "plan/model_desc.h"

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

// `config` is an object with the key "model_type". Knows llama, mistral, mixtral, qwen2, qwen3,
// gpt2 and gpt_neox. Units are named as the tensors in the model's safetensors files are; tied
// heads are no tensors of their own.
Result<ModelDesc> model_from_config(JsonValue config);

}  // namespace meron
