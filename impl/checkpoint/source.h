// SPDX-License-Identifier: Apache-2.0
// What can be loaded from: a checkpoint of Meron, or a model as Hugging Face publishes it, which is
// described as if it were one.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/directory.h"

namespace meron::checkpoint {

// A model's "writer" in its description.
inline constexpr const char* kForeignWriter = "safetensors";

// `path` is a checkpoint or a directory of several, as resolve() takes it; or a directory with
// model.safetensors, with model.safetensors.index.json or with one other such file or index; or one
// safetensors file. Headers of a model are read, and compared with the index and the files' sizes;
// its description has one kind, "values", and no checksums (Checkpoint::foreign). Links of a model
// are followed: Hugging Face's cache consists of them, and the caller has named the directory.
// Errors: those of resolve(), parse_hf_index() and parse_safetensors(); MERON_E_CORRUPT for a model
// whose files and index contradict each other; MERON_E_UNSUPPORTED for one that is pickled.
Result<Checkpoint> open_source(const std::string& path, const std::string& name);

}  // namespace meron::checkpoint
