// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace meron {

// Fills `out` from the kernel's generator: fit for secrets.
Status random_bytes(std::span<std::byte> out);

// True if a and b are equal, in a time that depends on their lengths alone.
bool constant_time_equal(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace meron
