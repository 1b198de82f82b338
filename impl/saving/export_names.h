// SPDX-License-Identifier: Apache-2.0
// Which tensors an export has, by their names in the files, and where their values are. The same on
// every rank, but for `data`.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_layout.h"
#include "saving/export.h"
#include "state/unit_state.h"

namespace meron {

// The source of a tensor's values: a param, or the caller.
struct ExportSource {
  const UnitState* unit = nullptr;  // null: the caller's
  const Param* param = nullptr;
  State state = {};        // that is read
  std::string dtype = {};  // of what is read, as safetensors names it
  const std::byte* data = nullptr;
};

struct ExportList {
  std::vector<checkpoint::ModelTensor> tensors;
  std::vector<ExportSource> sources;  // of each
};

// Params in the order of their registration, then the caller's tensors. MERON_E_ARGUMENT for a
// mapping that does not fit the params, and for what is no name.
Result<ExportList> list_exported(std::span<const UnitState> units,
                                 std::span<const ExportedTensor> tensors,
                                 const ExportOptions& options);

// The caller's tensors of rank 0 as text, for the other ranks, and back without data.
std::string to_text(std::span<const ExportedTensor> tensors);
std::vector<ExportedTensor> parse_exported(std::string_view text);

}  // namespace meron
