// SPDX-License-Identifier: Apache-2.0
// All bytes of a checkpoint against its manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "checkpoint/not_finite.h"

namespace meron::checkpoint {

// A block, or a complete file, that differs from the manifest; or the manifest, which differs from
// its own checksum.
struct Damage {
  std::string file;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string what;
  std::vector<std::string> tensors;  // that have bytes in it: "exp_avg of h.0.w"
};

// A tensor that has NaNs or infinities. They are allowed, and no damage.
struct NotFiniteTensor {
  std::string name;  // "exp_avg of h.0.w"
  NotFinite found;
};

struct Verified {
  uint64_t bytes = 0;  // that were read
  uint64_t blocks = 0;
  std::vector<Damage> damages;
  std::vector<NotFiniteTensor> not_finite;
  std::vector<uint32_t> absent_nodes;  // whose files are elsewhere: Manifest::nodes
};

// The manifest of that directory, whether its files exist or not, and its checksum fits or not.
Result<Manifest> read_manifest(const std::string& directory);

// Reads the manifest and every file, compares size and checksums; continues after a damage.
// `progress` is called with the bytes that were read since the last call. A model of Hugging Face
// has no checksums: its files are only read. Errors: what ends it before its end, none of a file.
Result<Verified> verify(const Checkpoint& checkpoint,
                        const std::function<void(uint64_t)>& progress);

}  // namespace meron::checkpoint
