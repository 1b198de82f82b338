// SPDX-License-Identifier: Apache-2.0
// The files of a model as Hugging Face publishes it: which tensor is in which file, and where.
// Pure.
//
// One file: model.safetensors. Several: model-00001-of-00003.safetensors and so on, with an index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meron::checkpoint {

inline constexpr uint64_t kDefaultModelFileBytes = 5'000'000'000;
inline constexpr size_t kMaxModelFiles = 99'999;

struct ModelTensor {
  std::string name;
  std::string dtype;  // as safetensors names it
  std::vector<uint64_t> shape;

  bool operator==(const ModelTensor&) const = default;
};

struct ModelFile {
  struct Place {
    size_t tensor = 0;  // index
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  std::string name;
  std::string head;  // up to the first tensor
  std::vector<Place> places;
  uint64_t bytes = 0;
};

struct ModelLayout {
  std::vector<ModelFile> files;
  std::string index;  // text of the index; empty: there is one file, which needs none

  // Of all files, the index among them.
  std::vector<std::string> names() const;
};

// The tensors in their order; a file is closed before its tensors would have more than
// `max_file_bytes` bytes, so only a tensor that is larger by itself makes a larger file. Within a
// file wide elements are first, so that each tensor begins at a multiple of its element's size.
// `generation`: 1, or another number that makes the names of several files others:
// model-2-00001-of-00003.safetensors. MERON_E_ARGUMENT: no tensors, two of a name, names and dtypes
// that a file cannot have, more than kMaxModelFiles files.
Result<ModelLayout> lay_out_model(std::span<const ModelTensor> tensors, uint64_t max_file_bytes,
                                  uint32_t generation = 1);

// The first generation whose names for so many files are not in `taken`.
uint32_t free_generation(size_t files, const std::set<std::string>& taken);

}  // namespace meron::checkpoint
