// SPDX-License-Identifier: Apache-2.0
// Internal to crc32c.cpp: CRC-32C by carry-less products of 512 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meron::kernels {

// Shorter ones are not worth the joining.
inline constexpr size_t kLeastFold = 512;  // bytes

// Whether this CPU has the instructions.
bool crc32c_folds();

// What `crc` becomes when `bytes` bytes, a multiple of 256 and at least kLeastFold, follow it; not
// inverted before or after.
uint32_t crc32c_fold(const unsigned char* from, size_t bytes, uint32_t crc);

}  // namespace meron::kernels
