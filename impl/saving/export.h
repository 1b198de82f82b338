// SPDX-License-Identifier: Apache-2.0
// How the ranks write the values of all units as a model of Hugging Face: rank 0 makes the files
// with their full sizes, each rank writes its own shard of each tensor in place, and when all have,
// rank 0 gives the files their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "checkpoint/model_layout.h"
#include "saving/exchange.h"
#include "saving/names.h"
#include "state/unit_state.h"

namespace meron {

// A tensor of the caller's own, which rank 0 writes.
struct ExportedTensor {
  checkpoint::ModelTensor desc;
  const std::byte* data = nullptr;
};

struct ExportOptions {
  std::string folder;
  std::optional<DType> dtype;   // of floating-point values; none: their own
  uint64_t max_file_bytes = 0;  // 0: checkpoint::kDefaultModelFileBytes
  bool overwrite = false;       // of rank 0
  std::string mapping = {};     // the caller's text of `names`; empty: params keep theirs
  SavedNames names = {};
  // Of rank 0, or why they cannot be taken: then all ranks get to know.
  Result<std::vector<ExportedTensor>> tensors = std::vector<ExportedTensor>();
};

inline constexpr uint64_t kExportPiece = 4 << 20;  // bytes

// Blocks: on the drive, and on all ranks. Takes memory for two pieces. Any failure is every rank's,
// names the rank, and leaves the model that was there.
Status export_model(Exchange& exchange, std::span<const UnitState> units,
                    const ExportOptions& options);

}  // namespace meron
