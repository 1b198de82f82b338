// SPDX-License-Identifier: Apache-2.0
// The CRC-32C checksum (Castagnoli's polynomial, as in RFC 3720, iSCSI, ext4 and SSE4.2).
#pragma once

#include <cstddef>
#include <cstdint>

namespace meron::kernels {

// The checksum of `bytes` bytes from `data` on, which need no alignment. `seed`: the checksum of
// what comes before them, so that
//   crc32c(b, n, crc32c(a, m)) == crc32c(a followed by b, m + n)
// and 0 is the checksum of nothing. Uses the CPU's instruction for it if there is one.
uint32_t crc32c(const void* data, size_t bytes, uint32_t seed = 0);

// The same without the instruction: the fallback of crc32c().
uint32_t crc32c_by_table(const void* data, size_t bytes, uint32_t seed = 0);

}  // namespace meron::kernels
