// SPDX-License-Identifier: Apache-2.0
// Storage formats of an optimizer's states: f32, bf16, or 8-bit floats with an f32 scale per block
// of kBlock elements. The functions on one element are the definition: the vector code yields the
// same bits.
//
// Formats smaller than f32 round at random, up with the probability that makes the mean right. A
// step changes a second moment with beta2 = 0.999 by less than half a unit of the last place, so
// with rounding to nearest it would never decay.
//
// 8 bits. A block has one scale s, a power of two, and an element x is stored as y = |x| / s + c
// with 3 bits of mantissa: code = bits of y, from the mantissa's third on, less those of c. Because
// of c, code 0 is 0 and small codes are evenly spaced; larger ones are floats.
//   averages (exp_avg, momentum)         sign, then 7 bits: c = 2^-13, 16 octaves
//   squares (exp_avg_sq, Adagrad's sum)  8 bits: c = 2^-29, 32 octaves: 16 of the gradient's
// Integers would need a table or a root for as wide a range: a step divides by the root of a
// square, which must therefore keep its relative precision far below the block's largest. For the
// same reason a positive value never becomes 0, but at least code 1. A single square wanders
// about its right value, by a fifth where gradients are noise, while the mean over elements stays:
// a small GPT that AdamW trained for 800 steps ended within 0.4 % of its loss with f32 states.
//
// The scale is the power of two with 3.5 <= max |x| / s < 7 (and from 2^-126 to 2^126), so that it
// and its inverse are exact: elements whose code does not change keep their value. A scale that
// makes the largest element exact would gain less than one octave of the range, and move all
// elements a little whenever the largest changes.
//
// Where an element of a block is infinite or NaN, codes are 0 and the scale is NaN: the block reads
// as NaN, never as numbers. bf16 keeps infinities and NaNs. Rounding up may make a finite value an
// infinity from 1.75 * 2^127 on with 8 bits, and from bf16's largest number on.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/half.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/type.h"

namespace meron::kernels {

enum class StateType : int32_t { f32 = 0, bf16 = 1, int8 = 2 };
enum class StateKind : int32_t { average = 0, square = 1 };

// Bytes of n elements without the scales, and how many scales they have.
constexpr size_t state_bytes(StateType type, size_t n) {
  return type == StateType::f32 ? 4 * n : type == StateType::bf16 ? 2 * n : n;
}
constexpr size_t scale_count(StateType type, size_t n) {
  return type == StateType::int8 ? n / kBlock + (n % kBlock != 0 ? 1 : 0) : 0;
}

// Between f32 and a state's type, to give a state its values and to read them; `scales` is used
// with 8 bits alone, and the range begins at a block. Encoding rounds to nearest, and gives the
// codes again that a block was decoded from. Squares are not negative: what is becomes 0.
void encode_states(StateType type, StateKind kind, void* data, float* scales, const float* from,
                   size_t n);
void decode_states(StateType type, StateKind kind, float* to, const void* data, const float* scales,
                   size_t n);

// --- One element

// Bits of the f32 that are cut off. 8 bits keep three of the mantissa.
inline constexpr int kBf16Cut = 16, kCodeCut = 20;

constexpr uint32_t state_random(uint64_t seed, uint64_t index) {
  return quant_hash(quant_key(seed, static_cast<uint32_t>(index >> 32)),
                    static_cast<uint32_t>(index));
}

// The part of an element's 32 random bits that is added before the cut: the first state uses the
// lowest bits, the second the highest. The 8 that both use with a cut of 20 are the second's least
// important.
constexpr uint32_t below_cut(uint32_t random, size_t which, int cut) {
  return which == 1 ? random >> (32 - cut) : random & ((1u << cut) - 1);
}
constexpr uint32_t half_below_cut(int cut) {
  return 1u << (cut - 1);
}

constexpr uint16_t bf16_at_random(float value, uint32_t below) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > kInfinityBits) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + below) >> kBf16Cut);
}

template <StateKind kKind>
struct Code {
  static constexpr float kOffset = kKind == StateKind::average ? 0x1p-13f : 0x1p-29f;
  static constexpr float kLeast = kOffset / 8;  // the value of code 1
  static constexpr uint32_t kBase = std::bit_cast<uint32_t>(kOffset) >> kCodeCut;

  static constexpr uint8_t encode(float value, float inverse, uint32_t below) {
    const float scaled = value * inverse;
    const uint32_t sign = std::bit_cast<uint32_t>(scaled) & 0x80000000u;
    const float size = std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) - sign);
    if (kKind == StateKind::average) {
      return static_cast<uint8_t>(cut(size, below) | sign >> 24);
    }
    // No std::max: it takes a reference, and in a device's code there is no kLeast to refer to.
    const float positive = scaled < kLeast ? kLeast : scaled;
    return static_cast<uint8_t>(cut(value > 0.0f ? positive : 0.0f, below));
  }
  static constexpr float decode(uint8_t code, float scale) {
    const uint32_t size = kKind == StateKind::average ? code & 0x7fu : code;
    const float x = std::bit_cast<float>((size + kBase) << kCodeCut) - kOffset;
    const uint32_t sign = kKind == StateKind::average ? (code & 0x80u) << 24 : 0;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | sign) * scale;
  }

 private:
  static constexpr uint32_t cut(float x, uint32_t below) {
    return ((std::bit_cast<uint32_t>(x + kOffset) + below) >> kCodeCut) - kBase;
  }
};

// The scale of a block in which the largest magnitude has these bits, and its inverse.
struct CodeScale {
  explicit constexpr CodeScale(uint32_t magnitude) : finite(magnitude < kInfinityBits) {
    constexpr uint32_t kExponent = 1u << 23;
    if (!finite) return;
    const uint32_t octave = (magnitude + kExponent / 4) & kInfinityBits;
    const uint32_t bits = std::max(octave, 3 * kExponent) - 2 * kExponent;
    scale = std::bit_cast<float>(bits);
    inverse = std::bit_cast<float>(254 * kExponent - bits);
  }

  bool finite;
  float scale = std::bit_cast<float>(kNaNBits);
  float inverse = 0;
};

}  // namespace meron::kernels
