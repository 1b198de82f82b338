// SPDX-License-Identifier: Apache-2.0
// Hugging Face's model.safetensors.index.json: which tensors are in which files of a model that is
// split into several. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meron::checkpoint {

struct HfIndex {
  struct Tensor {
    std::string name;
    uint32_t file = 0;  // index in `files`

    bool operator==(const Tensor&) const = default;
  };

  uint64_t total_bytes = 0;        // of all tensors, as "metadata" says; 0: it does not say
  std::vector<std::string> files;  // unique, in the order of their first use
  std::vector<Tensor> tensors;     // in the order of the text

  bool operator==(const HfIndex&) const = default;
};

inline constexpr std::string_view kHfIndexFile = "model.safetensors.index.json";

// A manifest's limits apply. "metadata" may have more keys; only "total_size" is read.
// MERON_E_CORRUPT: a file name that leaves the directory, or without ".safetensors".
Result<HfIndex> parse_hf_index(std::string_view text);

// Text that parse_hf_index() reads back to an equal value.
std::string to_json(const HfIndex& index);

}  // namespace meron::checkpoint
