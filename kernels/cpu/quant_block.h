// SPDX-License-Identifier: Apache-2.0
// The parts of quant.h's formulas that are computed once per block or per run of 64 elements, and
// the random numbers: shared by the kernels and the reference.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/quant.h"

namespace meron::kernels {

constexpr float qmax_of(QuantFormat format) {
  return format.bits == 8 ? 127.0f : 7.0f;
}

inline constexpr uint32_t kInfinityBits = 0x7f800000;
inline constexpr uint32_t kNaNBits = 0x7fc00000;

// `value`, a positive normal number, or one ulp less. Not a branch: it would be a coin's toss.
constexpr float one_ulp_less_if(bool less, float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) - static_cast<uint32_t>(less));
}

constexpr bool is_finite(float value) {
  return (std::bit_cast<uint32_t>(value) & kInfinityBits) != kInfinityBits;
}

// Encoding parameters of a block with the largest magnitude m.
struct BlockScale {
  enum class Kind { ordinary, zero, nonfinite };

  // `magnitude`: the bits of the largest |t|, as an integer: those of a NaN exceed infinity's.
  MERON_HOST_DEVICE BlockScale(uint32_t magnitude, QuantFormat format) {
    const float qmax = qmax_of(format);
    const auto m = std::bit_cast<float>(magnitude);
    if (magnitude >= kInfinityBits) {
      kind = Kind::nonfinite;
      step = std::bit_cast<float>(kNaNBits);
      return;
    }
    if (m < kQuantTiny) return;
    kind = Kind::ordinary;
    inverse = qmax / m;
    inverse = one_ulp_less_if(m * inverse > qmax, inverse);
    step = m / qmax;
    step = one_ulp_less_if(step * qmax > m, step);
  }

  Kind kind = Kind::zero;
  float inverse = 0, step = 0;
};

// By which values are multiplied before the butterflies of a run.
inline constexpr float kTransformScale = 1.0f / static_cast<float>(kQuantRun);

// Random bits are a function of the seed and of the element's number: `upper` are the number's
// upper 32 bits, `lower` the others.
constexpr uint64_t quant_key(uint64_t seed, uint32_t upper) {
  uint64_t key = seed + 0x9e3779b97f4a7c15u * (uint64_t{upper} + 1);
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  return key ^ (key >> 31);
}

constexpr uint32_t quant_hash(uint64_t key, uint32_t lower) {
  uint32_t x = lower ^ static_cast<uint32_t>(key);
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  x = ((x ^ (x >> 15)) + static_cast<uint32_t>(key >> 32)) * 0x735a2d97u;
  return x ^ (x >> 15);
}

}  // namespace meron::kernels
