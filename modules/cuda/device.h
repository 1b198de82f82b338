// SPDX-License-Identifier: Apache-2.0
// The functions of the table of meron/backend.h.
#pragma once

#include "meron/backend.h"

namespace meron::cuda {

const meron_device_table& device_table();

}  // namespace meron::cuda
