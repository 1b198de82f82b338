// SPDX-License-Identifier: Apache-2.0
// Old checkpoints, removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace meron::checkpoint {

// Removes complete checkpoints, the oldest first, until `keep` are left; with `lineage`, only those
// of that line of checkpoints (History). Never removes the newest one, the newest one of complete
// states, those named in `protect`, incomplete ones, links, and directories of others. A checkpoint
// loses its name before its first file, so a killed process leaves each one complete or gone.
// Returns the names that were removed. Errors: MERON_E_ARGUMENT if `keep` is 0; MERON_E_TIMEOUT if
// another process holds the directory's lock. `progress`, which may be empty, is called before each
// file that is removed.
Result<std::vector<std::string>> prune(const std::string& root, size_t keep,
                                       const std::vector<std::string>& protect = {},
                                       std::optional<uint32_t> node = {},
                                       const std::function<void()>& progress = {},
                                       const std::optional<std::string>& lineage = {});

// The names that prune() would remove.
Result<std::vector<std::string>> would_prune(const std::string& root, size_t keep,
                                             const std::vector<std::string>& protect = {},
                                             std::optional<uint32_t> node = {});

}  // namespace meron::checkpoint
