// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files, read and composed. The format: plan/safetensors_header.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/safetensors_header.h"

namespace meron::checkpoint {

// A header's length in the file is a multiple of this, so that data are moved past the page cache.
inline constexpr uint64_t kHeaderAlign = 4096;

// "__metadata__" of every file of the checkpoint with that id (Manifest::id). transformers refuses
// files without "format".
std::map<std::string, std::string> file_metadata(const std::string& id);
inline constexpr const char* kIdKey = "meron.id";

// read_safetensors_header() of a file with any dtype of safetensors and the names of pieces.
Result<SafetensorsHeader> parse_safetensors(std::string_view head, uint64_t file_size);

// The first bytes of a file whose data are the entries', in their order and without holes: length
// field, JSON, and spaces up to a multiple of kHeaderAlign. The data follow at the returned size.
// MERON_E_ARGUMENT: what parse_safetensors() would not read.
Result<std::string> compose_safetensors(const std::vector<SafetensorsEntry>& entries,
                                        const std::map<std::string, std::string>& metadata);

}  // namespace meron::checkpoint
