// SPDX-License-Identifier: Apache-2.0
// The values of a checkpoint, written as Hugging Face publishes models.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "checkpoint/tensor_reader.h"

namespace meron::checkpoint {

struct ModelOptions {
  std::string folder;  // made if it does not exist
  std::string dtype;   // of floating-point values: "F32", "BF16", "F16"; empty: their own
  uint64_t max_file_bytes = 0;
  bool overwrite = false;
};

// Streams in pieces of a few MiB. Masters are the source if there are any and the dtype is not
// the values' own. `progress` is called with bytes that were written; the files that were made are
// returned. Errors: those of ModelExport and TensorReader::read().
Result<std::vector<std::string>> export_model(TensorReader& from, const ModelOptions& options,
                                              const std::function<void(uint64_t)>& progress);

}  // namespace meron::checkpoint
