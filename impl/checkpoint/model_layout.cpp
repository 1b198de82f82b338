// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/layout.h"
#include "checkpoint/hf_index.h"
#include "checkpoint/hf_source.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "plan/text.h"

namespace meron::checkpoint {
namespace {

Result<uint64_t> bytes_of(const ModelTensor& tensor) {
  uint64_t bytes = element_bytes(tensor.dtype);
  const auto refused = [&](std::string what, std::string advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), std::move(advice)).on(tensor.name);
  };
  if (bytes == 0) {
    return refused(fmt::format("a safetensors file has no dtype {}", in_quotes(tensor.dtype)),
                   "use F32, BF16, F16, I64 or another one of safetensors");
  }
  for (const uint64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > UINT64_MAX / 4) {
      return refused("the tensor has more bytes than a file can hold", "check its shape");
    }
  }
  return bytes;
}

Status check_names(std::span<const ModelTensor> tensors) {
  std::set<std::string_view> names;
  for (const ModelTensor& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    return Error(MERON_E_ARGUMENT, "two tensors would have this name in the files",
                 "give each its own by the mapping, or leave one out")
        .on(tensor.name);
  }
  return Ok{};
}

std::string file_name(uint32_t generation, size_t number, size_t files) {
  const std::string mark = generation == 1 ? std::string() : fmt::format("{}-", generation);
  return fmt::format("model-{}{:05}-of-{:05}.safetensors", mark, number, files);
}

Status compose(std::span<const ModelTensor> tensors, ModelFile* file) {
  std::stable_sort(file->places.begin(), file->places.end(), [&](const auto& a, const auto& b) {
    return element_bytes(tensors[a.tensor].dtype) > element_bytes(tensors[b.tensor].dtype);
  });
  std::vector<SafetensorsEntry> entries;
  uint64_t at = 0;
  for (const ModelFile::Place& place : file->places) {
    const ModelTensor& tensor = tensors[place.tensor];
    entries.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .begin = at,
                       .end = at + place.bytes});
    at += place.bytes;
  }
  MERON_ASSIGN(file->head, compose_safetensors(entries, {{"format", "pt"}}));
  for (size_t i = 0; i < entries.size(); ++i) {
    file->places[i].offset = file->head.size() + entries[i].begin;
  }
  file->bytes = file->head.size() + at;
  return Ok{};
}

}  // namespace

std::vector<std::string> ModelLayout::names() const {
  std::vector<std::string> names;
  for (const ModelFile& file : files) names.push_back(file.name);
  if (!index.empty()) names.emplace_back(kHfIndexFile);
  return names;
}

Result<ModelLayout> lay_out_model(std::span<const ModelTensor> tensors, uint64_t max_file_bytes,
                                  uint32_t generation) {
  if (tensors.empty()) {
    return Error(MERON_E_ARGUMENT, "there are no values to export",
                 "make units, or give tensors, first");
  }
  MERON_TRY(check_names(tensors));
  const uint64_t most = max_file_bytes == 0 ? kDefaultModelFileBytes : max_file_bytes;
  ModelLayout layout;
  uint64_t in_file = 0, all = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    MERON_ASSIGN(const uint64_t bytes, bytes_of(tensors[t]));
    if (layout.files.empty() || (in_file > 0 && (bytes > most || in_file > most - bytes))) {
      layout.files.emplace_back();
      in_file = 0;
    }
    layout.files.back().places.push_back({.tensor = t, .offset = 0, .bytes = bytes});
    in_file += bytes;
    all += bytes;
  }
  const size_t files = layout.files.size();
  if (files > kMaxModelFiles) {
    return Error(
        MERON_E_ARGUMENT,
        fmt::format("the model would have {} files of at most {} bytes, and {} is the most", files,
                    most, kMaxModelFiles),
        "allow larger files by `max_file_bytes`");
  }
  HfIndex index;
  index.total_bytes = all;
  for (size_t f = 0; f < files; ++f) {
    ModelFile& file = layout.files[f];
    file.name = files == 1 ? std::string(kHfFile) : file_name(generation, f + 1, files);
    for (const ModelFile::Place& place : file.places) {
      index.tensors.push_back({tensors[place.tensor].name, static_cast<uint32_t>(f)});
    }
    MERON_TRY(compose(tensors, &file));
    index.files.push_back(file.name);
  }
  if (files > 1) layout.index = to_json(index);
  return layout;
}

uint32_t free_generation(size_t files, const std::set<std::string>& taken) {
  for (uint32_t generation = 1;; ++generation) {
    bool free = true;
    for (size_t f = 1; free && f <= files; ++f) {
      free = taken.count(file_name(generation, f, files)) == 0;
    }
    if (free) return generation;
  }
}

}  // namespace meron::checkpoint
