// SPDX-License-Identifier: Apache-2.0
// A model from the header of a safetensors file. No I/O: the caller reads the bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "plan/model_desc.h"

namespace meron::planning {

// `head` begins at the file's first byte and holds at least safetensors_head_bytes() bytes; what
// follows is ignored. Everything is trainable. Tensors form units by layer: a name whose dotted
// path has a number belongs to the path up to the first number ("model.layers.3.mlp.w" to
// "model.layers.3"), any other to its parent ("lm_head.weight" to "lm_head", "scale" to "scale").
// Units, and the tensors in them, keep their order in the file.
Result<ModelDesc> model_from_safetensors(std::string_view head, uint64_t file_size);

}  // namespace meron::planning
