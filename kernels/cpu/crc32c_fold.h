// SPDX-License-Identifier: Apache-2.0
// Internal to crc32c.cpp: CRC-32C by carry-less products of 512 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meron::kernels {

// Shorter ones are not worth the joining.
inline constexpr size_t kLeastFold = 512;  // bytes

// True if this CPU has the instructions.
bool crc32c_folds();

// Appends `bytes` bytes to `crc`: a multiple of 256, and at least kLeastFold. Does not invert
// before or after.
uint32_t crc32c_fold(const unsigned char* from, size_t bytes, uint32_t crc);

}  // namespace meron::kernels
