// SPDX-License-Identifier: Apache-2.0
// The config.json of a Hugging Face model, from which the shapes of its tensors follow.
#pragma once

#include <string_view>

#include "base/result.h"
#include "plan/model_desc.h"

namespace meron::planning {

// `json` is what parse_model() reads, or a config.json, which has the key "model_type". Knows
// llama, mistral, mixtral, qwen2, qwen3, gpt2 and gpt_neox. Units are named as the tensors in the
// model's safetensors files are; tied heads are no tensors of their own. Other keys are ignored.
Result<ModelDesc> parse_model_or_config(std::string_view json);

}  // namespace meron::planning
