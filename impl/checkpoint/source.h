// SPDX-License-Identifier: Apache-2.0
// What can be loaded: a checkpoint, or a model as Hugging Face publishes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/block_reader.h"
#include "checkpoint/directory.h"

namespace meron::checkpoint {

// Opens `path`, the first of these that it is: a checkpoint; a directory with checkpoints (the
// newest complete one); a directory with a model of Hugging Face; one safetensors file. A directory
// whose checkpoints are all incomplete is still a directory with checkpoints. With `name`, that
// entry of `path`: a checkpoint or a model. Reads no tensor. Errors: those of resolve(),
// open_hf_directory() and open_hf_file().
Result<Checkpoint> open_source(const std::string& path, const std::string& name,
                               std::optional<uint32_t> node = {});

// Options to read its files.
ReaderOptions reading_of(const Checkpoint& checkpoint, int64_t timeout_ns = -1);

}  // namespace meron::checkpoint
