// SPDX-License-Identifier: Apache-2.0
// A checkpoint rewritten as the files of another number of ranks: the same tensors, byte for byte.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "checkpoint/tensor_reader.h"

namespace meron::checkpoint {

struct ReshardOptions {
  std::string root;  // of the new checkpoint, made if it does not exist
  std::string name;
  uint32_t ranks = 1;
  bool overwrite = false;
};

// Streams through a few blocks, whatever the size. Each rank gets the same share of the values and
// of the other states, to within an element. The new one keeps step, time, plan, optimizers and
// `extra`. `progress` is called with bytes that were written. Errors: those of Saving,
// TensorReader::read() and BlockWriter; MERON_E_ARGUMENT for 0 ranks or more than a plan has.
Status reshard(TensorReader& from, const ReshardOptions& options,
               const std::function<void(uint64_t)>& progress);

}  // namespace meron::checkpoint
