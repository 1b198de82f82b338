// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "meron/base.h"

namespace meron {

// "MERON_E_TIMEOUT"; "MERON_E_UNKNOWN" for a code that this version does not have. Static.
const char* status_name(meron_status status);

}  // namespace meron
