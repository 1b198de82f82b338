// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a folder, without a context.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/remove.h"  // IWYU pragma: export

namespace meron {

// The complete checkpoints in the folder, newest first, as JSON: an array of objects.
Result<std::string> list_checkpoints(const std::string& folder);

}  // namespace meron
