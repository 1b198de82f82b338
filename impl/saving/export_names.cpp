// SPDX-License-Identifier: Apache-2.0
#include "saving/export_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/unit_layout.h"
#include "saving/layout.h"

namespace meron {
namespace {

bool is_floating(std::string_view dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

}  // namespace

Result<ExportList> list_exported(std::span<const UnitState> units,
                                 std::span<const ExportedTensor> tensors,
                                 const ExportOptions& options) {
  MERON_TRY(options.names.check(units));
  ExportList list;
  for (const UnitState& unit : units) {
    for (const auto& param : unit.unit().params()) {
      if (options.names.left_out(*param)) continue;
      const size_t flat = param->place.flat;
      const DType own = unit.unit().flats()[flat].desc.dtype;
      const DType dtype = options.dtype.value_or(own);
      // Values of the files' dtype are what forward uses, bit for bit.
      const State state = dtype == own ? State{flat, StateKind::values, own} : unit.exact(flat);
      list.tensors.push_back(
          {options.names.of(*param), std::string(dtype_text(dtype)), param->desc.shape});
      list.sources.push_back({.unit = &unit,
                              .param = param.get(),
                              .state = state,
                              .dtype = std::string(dtype_text(state.dtype))});
    }
  }
  for (const ExportedTensor& tensor : tensors) {
    MERON_TRY(check_name(tensor.desc.name));
    list.tensors.push_back(tensor.desc);
    list.sources.push_back({.dtype = tensor.desc.dtype, .data = tensor.data});
    if (!options.dtype || !is_floating(tensor.desc.dtype)) continue;
    list.tensors.back().dtype = dtype_text(*options.dtype);
  }
  return list;
}

// DTYPE SIZE,SIZE NAME of each, a line; names have no line breaks.
std::string to_text(std::span<const ExportedTensor> tensors) {
  std::string text;
  for (const auto& [desc, data] : tensors) {
    text += fmt::format("{} {} {}\n", desc.dtype, fmt::join(desc.shape, ","), desc.name);
  }
  return text;
}

std::vector<ExportedTensor> parse_exported(std::string_view text) {
  std::vector<ExportedTensor> out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const size_t first = line.find(' '), second = line.find(' ', first + 1);
    ExportedTensor tensor;
    tensor.desc.dtype = line.substr(0, first);
    tensor.desc.name = line.substr(second + 1);
    std::string_view shape = line.substr(first + 1, second - first - 1);
    while (!shape.empty()) {
      uint64_t size = 0;
      size_t at = 0;
      for (; at < shape.size() && shape[at] != ','; ++at) {
        size = size * 10 + static_cast<uint64_t>(shape[at] - '0');
      }
      tensor.desc.shape.push_back(size);
      shape.remove_prefix(std::min(at + 1, shape.size()));
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace meron
