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

// What `path` names: a checkpoint; the newest complete one in it; a model of Hugging Face in it;
// one safetensors file. In this order: a directory that has checkpoints is a directory of
// checkpoints, also if none is complete. With `name`, that entry of `path`: a checkpoint or a
// model. No tensor is read. Errors: those of resolve(), open_hf_directory() and open_hf_file().
Result<Checkpoint> open_source(const std::string& path, const std::string& name,
                               std::optional<uint32_t> node = {});

// How its files are read.
ReaderOptions reading_of(const Checkpoint& checkpoint, int64_t timeout_ns = -1);

}  // namespace meron::checkpoint
