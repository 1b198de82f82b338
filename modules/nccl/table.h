// SPDX-License-Identifier: Apache-2.0
// The table of meron/backend.h.
#pragma once

#include "meron/backend.h"

namespace meron::nccl {

const meron_collective_table& collective_table();

}  // namespace meron::nccl
