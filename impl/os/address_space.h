// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/result.h"

namespace meron {

// Reserves `bytes` of address space, a multiple of the page, aligned to a huge page, without
// access. The caller maps over it or makes it accessible, and releases it by munmap.
// MERON_E_NO_MEMORY.
Result<std::byte*> take_address_space(size_t bytes);

// The error of a failure to map `bytes`.
Error no_address_space(size_t bytes, int error);

}  // namespace meron
