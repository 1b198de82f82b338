// SPDX-License-Identifier: Apache-2.0
// The 16-bit formats, one element at a time. These functions are the definition: the vector code
// yields the same bits on every target.
//
// Narrowing rounds to nearest, ties to even; what is too large becomes an infinity; subnormal
// results are exact to the last bit of the format. A NaN stays a NaN: its upper payload is kept and
// it is made quiet. Widening is exact; f16 makes a signalling NaN quiet, bf16 keeps its bits.
#pragma once

#include <bit>
#include <cstdint>

namespace meron::kernels {

// Conversion of a NaN with these bits, for callers that convert numbers by an instruction.
constexpr uint16_t bf16_from_nan(uint32_t bits) {
  return static_cast<uint16_t>((bits >> 16) | 0x40u);
}
constexpr uint16_t f16_from_nan(uint32_t bits) {
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | 0x7e00u | ((bits >> 13) & 0x3ffu));
}
constexpr uint32_t f32_from_f16_nan(uint16_t bits) {
  return static_cast<uint32_t>(bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x3ffu) << 13;
}

constexpr float f32_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16_from_nan(bits);
  const uint32_t odd = (bits >> 16) & 1;
  return static_cast<uint16_t>((bits + 0x7fffu + odd) >> 16);
}

constexpr float f32_from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(mantissa != 0 ? f32_from_f16_nan(bits) : sign | 0x7f800000u);
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: shift the leading one up to where f32 implies it.
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21;
  return std::bit_cast<float>(sign | ((113 - shift) << 23) |
                              (((mantissa << shift) & 0x3ffu) << 13));
}

constexpr uint16_t f16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return f16_from_nan(bits);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520 up
  if (magnitude >= 0x38800000u) {  // from 2^-14 up: normal
    const uint32_t odd = (magnitude >> 13) & 1;
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
  if (magnitude <= 0x33000000u) return sign;  // up to 2^-25, the tie between zero and the smallest
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 126 - (magnitude >> 23);  // 14 to 24: a unit is worth 2^-24
  const uint32_t quotient = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  const bool up = rest > half || (rest == half && (quotient & 1) != 0);
  return static_cast<uint16_t>(sign | (quotient + (up ? 1 : 0)));
}

}  // namespace meron::kernels
