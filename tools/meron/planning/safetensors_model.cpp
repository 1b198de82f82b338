// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/safetensors_model.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "plan/safetensors_header.h"

namespace meron::planning {
namespace {

// The dtypes of a model's tensors; dtype_of() knows the same.
constexpr std::array<std::string_view, 3> kModelDTypes = {"F32", "BF16", "F16"};

DType dtype_of(std::string_view name) {
  return name == "F32" ? DType::f32 : name == "BF16" ? DType::bf16 : DType::f16;
}

std::string_view trim_digits_path(std::string_view name) {
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (number) return name.substr(0, end);
    begin = end + 1;
  }
  return {};
}

// The unit that a tensor belongs to: see model_from_safetensors().
std::string_view unit_of(std::string_view name) {
  if (const std::string_view layer = trim_digits_path(name); !layer.empty()) return layer;
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot);
}

}  // namespace

Result<ModelDesc> model_from_safetensors(std::string_view head, uint64_t file_size) {
  MERON_ASSIGN(SafetensorsHeader header,
               read_safetensors_header(
                   head, file_size,
                   {.dtypes = kModelDTypes,
                    .advice = "convert it to F32, BF16 or F16, or leave it out of the file"}));

  std::vector<std::string> names;
  std::vector<std::vector<TensorDesc>> tensors;  // per unit
  std::unordered_map<std::string, size_t> index;
  for (SafetensorsEntry& entry : header.entries) {
    const auto [unit, added] = index.try_emplace(std::string(unit_of(entry.name)), names.size());
    if (added) {
      names.push_back(unit->first);
      tensors.emplace_back();
    }
    tensors[unit->second].push_back(
        {std::move(entry.name), std::move(entry.shape), dtype_of(entry.dtype)});
  }
  ModelDesc model;
  for (size_t i = 0; i < names.size(); ++i) {
    MERON_ASSIGN(UnitLayout layout, layout_unit(tensors[i]));
    model.units.push_back({std::move(names[i]), std::move(layout.flats)});
  }
  return model;
}

}  // namespace meron::planning
