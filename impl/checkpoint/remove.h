// SPDX-License-Identifier: Apache-2.0
// One checkpoint, removed at the trainer's wish. Old ones are removed by prune.h.
#pragma once

#include <string>

#include "base/result.h"

namespace meron::checkpoint {

// Removes the checkpoint of that name, complete or not. It loses its name before its first file, so
// a killed process or a power cut leaves it as it was or gone. ROOT/latest then names the newest of
// those that are left. Errors: MERON_E_ARGUMENT for what is no name, or no checkpoint;
// MERON_E_NOT_FOUND; MERON_E_AUTH for a link; MERON_E_STATE while a process saves that name or has
// the checkpoint open; MERON_E_PARSE, MERON_E_CORRUPT and MERON_E_VERSION if its manifest cannot be
// read; MERON_E_TIMEOUT if another process holds ROOT's lock; errors of the drive.
Status remove_checkpoint(const std::string& root, const std::string& name);

}  // namespace meron::checkpoint
