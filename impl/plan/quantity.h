// SPDX-License-Identifier: Apache-2.0
// Quantities as people write them: "100 Gb/s", "5 us", "80 GiB", "3.35 TB/s". A number, blanks or
// none, and a unit of the wanted kind, in its own upper and lower case: b is a bit and B a byte, M
// is mega and m is milli.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meron {

enum class QuantityKind : uint8_t {
  bytes,      // B; kB, MB, GB, TB, PB are powers of 1,000, KiB to PiB of 1,024
  byte_rate,  // the same per second, and b/s to Tb/s: bits per second, eight to a byte
  seconds,    // s, ms, us, ns
  work_rate,  // FLOP/s to PFLOP/s
};

inline constexpr double kMaxQuantity = 1e18;  // bytes, bytes per second, FLOP/s
inline constexpr double kMaxSeconds = 1e6;

// In bytes, bytes per second, seconds or operations per second: 0 to the limit above. An error
// (MERON_E_PARSE) says which units there are.
Result<double> parse_quantity(std::string_view text, QuantityKind kind);

// "0 s", "12.3 us", "4.56 ms", "789 s": three digits.
std::string human_seconds(double seconds);

// "12.5 GB/s", of bytes per second: powers of 1,000, up to four digits.
std::string human_rate(double bytes_per_second);

}  // namespace meron
