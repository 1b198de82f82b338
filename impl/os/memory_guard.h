// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"

namespace meron {

// Ok if the host and the memory cgroups of this process can give `bytes` more. The kernel does not
// refuse memory, it kills for it. This refuses first, with MERON_E_NO_MEMORY and an error that says
// how much is needed, how much is free, and under which limit. Cheap for small amounts.
//
// It is a check, not a reservation: processes that check at the same time can both succeed. A
// caller that allocates much memory checks again after every piece.
Status require_memory(uint64_t bytes);

// The error of the kernel's refusal to give `bytes`.
Error refused_memory(uint64_t bytes, int error);

}  // namespace meron
