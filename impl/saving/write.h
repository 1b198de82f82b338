// SPDX-License-Identifier: Apache-2.0
// A checkpoint of one process without units: what importers of other formats write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "saving/given.h"

namespace meron {

struct WriteOptions {
  std::string root;  // directory of checkpoints
  std::string name;
  uint64_t step = 0;
  bool overwrite = false;
  std::string extra = {};       // the caller's JSON text, an object, or empty
  std::string optimizers = {};  // as the manifest lists them, a JSON array, or empty
  std::vector<GivenTensor> tensors = {};
};

// Blocks: on the drive. Data are read once and in order. Errors as those of save().
Status write_checkpoint(WriteOptions options);

}  // namespace meron
