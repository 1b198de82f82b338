// SPDX-License-Identifier: Apache-2.0
// Models as Hugging Face publishes them, described like checkpoints of values without checksums.
//
// Links are followed: Hugging Face's cache of downloads consists of them, and a path into it means
// their targets. Names within an index are single components all the same.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/directory.h"

namespace meron::checkpoint {

inline constexpr std::string_view kHfFile = "model.safetensors";

// True if open_hf_directory() finds a model in the directory.
Result<bool> has_hf_model(const std::string& directory);

// The model in a directory: of model.safetensors.index.json, of model.safetensors, of its only
// other index, or of its only other safetensors file. Reads headers only. Errors:
// MERON_E_NOT_FOUND: it has neither (advice names what it has), or a file of the index is not
// there; those of parse_hf_index() and parse_safetensors(); MERON_E_CORRUPT naming file and tensor:
// one that the index places in a file that lacks it, or one that two files have.
Result<Checkpoint> open_hf_directory(const std::string& path);

// The tensors of one safetensors file. MERON_E_ARGUMENT: it is a pickle of torch, or has another
// name than *.safetensors.
Result<Checkpoint> open_hf_file(const std::string& path);

}  // namespace meron::checkpoint
