// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/result.h"

namespace meron {

// Takes `bytes` of address space, a multiple of the page, aligned to a huge page, that may not be
// touched: to be mapped over, or made accessible, and given back by munmap. MERON_E_NO_MEMORY.
Result<std::byte*> take_address_space(size_t bytes);

// What a refusal to map `bytes` by `error` says.
Error no_address_space(size_t bytes, int error);

}  // namespace meron
