// SPDX-License-Identifier: Apache-2.0
// Storage formats of an optimizer's states: f32, bf16, or 8-bit floats with an f32 scale per block
// of kBlock elements. The functions on one element are the definition: the vector code yields the
// same bits.
//
// Formats smaller than f32 round at random, up with the probability that makes the mean right. A
// step changes a second moment with beta2 = 0.999 by less than half a unit of the last place, so
// with rounding to nearest it would never decay.
//
// 8 bits. Each block has the format of its own codes, in one word that is stored beside them. The
// format spends the codes on the range that the block needs, so a block of similar elements keeps
// two to six more bits of precision than one whose elements differ by many powers of ten.
//
// Squares (exp_avg_sq, Adagrad's sum): code 0 is 0, and code c is the f32 with the bits
//   base + ((c - 1) << shift),
// where 8 <= shift <= 20, the smallest that reaches from the least positive element of the block to
// the largest. 20 keeps 3 bits of mantissa and reaches over 31 octaves, 14 keeps 9 bits and half an
// octave. A step divides by the root of a square, so a positive square never becomes 0 but at least
// code 1. Squares of equal size are the usual case: the rounding's noise grows with the root of the
// distance between codes, and a wide range for all blocks made it four times that of bitsandbytes.
//
// Averages (exp_avg, momentum): a sign, and 7 bits that are |x| / scale + offset with 3, 4 or 5
// bits of mantissa: code = bits of the sum from the mantissa's last kept one on, less those of
// offset. Because of the offset, code 0 is 0 and small codes are evenly spaced; larger ones are
// floats.
//   3 bits of mantissa: offset 2^-13, 16 octaves
//   4 bits:             offset 2^-5,   8 octaves
//   5 bits:             offset 2^-1,   4 octaves
// A step divides an average by the root of its square. So the range of the block's squares decides:
// 5 bits up to shift 18 (8 octaves), 4 bits for 19, else 3. Rules without squares have 3 bits.
//
// The scale is the power of two with 3.5 <= max |x| / scale < 7 (and from 2^-126 to 2^126), so that
// it and its inverse are exact: elements whose code does not change keep their value. The same
// holds for squares, whose codes stand on a grid of f32 numbers that moves by its own units only.
//
// If an element of a block is infinite or NaN, the block reads as NaN, never as numbers. bf16 keeps
// infinities and NaNs. Rounding up may make a finite value an infinity from kLargestState() on.
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

// The bits of the largest f32 that no rounding of a state can make infinite.
constexpr uint32_t largest_state_bits(StateType type) {
  return type == StateType::f32 ? 0x7f7fffffu : type == StateType::bf16 ? 0x7f7f0000u : 0x7f600000u;
}

// --- One element

inline constexpr int kBf16Cut = 16;  // bits of the f32 that bf16 cuts off

constexpr uint32_t state_random(uint64_t seed, uint64_t index) {
  return quant_hash(quant_key(seed, static_cast<uint32_t>(index >> 32)),
                    static_cast<uint32_t>(index));
}

// The bits to add below the cut of state `which` of a rule before it is cut: random ones, or a half
// to round to nearest.
constexpr uint32_t below_cut(uint32_t random, size_t which, uint32_t cut) {
  return which == 1 ? random >> (32 - cut) : random & ((1u << cut) - 1);
}
constexpr uint32_t half_below_cut(uint32_t cut) {
  return 1u << (cut - 1);
}

constexpr uint16_t bf16_at_random(float value, uint32_t below) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > kInfinityBits) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + below) >> kBf16Cut);
}

// --- A block of 8 bits

// The range of a block's elements, as bits of f32: the largest magnitude, and the least positive
// element less one. The latter is UINT32_MAX if no element is positive.
struct BlockRange {
  uint32_t largest = 0, least = UINT32_MAX;

  constexpr void include(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
    // Zero, and a negative number that a square should not be, wrap around or are above all.
    least = bits - 1 < least ? bits - 1 : least;
  }
};

class SquareCode {
 public:
  static constexpr uint32_t kLeastShift = 8, kMostShift = 20;
  static constexpr uint32_t kTop = 254;  // the largest code less one

  // Of the word that a block has: to decode.
  explicit constexpr SquareCode(float word)
      : base(std::bit_cast<uint32_t>(word) & ~0xffu),
        shift(std::bit_cast<uint32_t>(word) & 0x1fu) {}
  explicit constexpr SquareCode(const BlockRange& range) : shift(kLeastShift) {
    if (range.largest >= kInfinityBits) {
      base = kNaNBits;
      return;
    }
    if (range.largest == 0) return;
    // Below the largest, also where all positive numbers are the largest.
    const uint32_t least = range.least < range.largest ? range.least + 1 : range.largest;
    const uint32_t width = bits_of(range.largest - least);
    if (width > kLeastShift + 8) shift = width - 8;  // a smaller one cannot do
    if (shift > kMostShift) shift = kMostShift;
    while (shift < kMostShift && top_of(range.largest) - (least >> shift) > kTop) ++shift;
    uint32_t first = least >> shift;
    const uint32_t top = top_of(range.largest);
    if (top > first + kTop) first = top - kTop;
    base = (first == 0 ? 1 : first) << shift;
  }

  constexpr bool finite() const { return base != kNaNBits; }
  constexpr float word() const { return std::bit_cast<float>(base | shift); }

  constexpr uint8_t encode(float value, uint32_t below) const {
    if (!finite()) return 1;
    if (!(value > 0.0f)) return 0;
    const uint32_t bits = std::bit_cast<uint32_t>(value) + below;
    return static_cast<uint8_t>((((bits < base ? base : bits) - base) >> shift) + 1);
  }
  constexpr float decode(uint8_t code) const {
    return code == 0 ? 0.0f : std::bit_cast<float>(base + ((code - 1u) << shift));
  }

  uint32_t base = 0, shift = 0;

 private:
  // The number's bits up to its first; 1 for 0. (A double holds it exactly, on a device too.)
  static constexpr uint32_t bits_of(uint32_t number) {
    const auto exponent = std::bit_cast<uint64_t>(static_cast<double>(number | 1u)) >> 52;
    return static_cast<uint32_t>(exponent) - 1022;
  }
  constexpr uint32_t top_of(uint32_t largest) const {
    return (largest + (1u << shift) - 1) >> shift;
  }
};

class AverageCode {
 public:
  // Bits of mantissa less 3.
  static constexpr uint32_t kFormats = 3;

  // Of the word that a block has: to decode.
  explicit constexpr AverageCode(float word) : AverageCode(std::bit_cast<uint32_t>(word) & 3u) {
    scale = std::bit_cast<float>(std::bit_cast<uint32_t>(word) & ~3u);
  }
  constexpr AverageCode(const BlockRange& range, uint32_t format) : AverageCode(format) {
    constexpr uint32_t kExponent = 1u << 23;
    if (range.largest >= kInfinityBits) {
      scale = std::bit_cast<float>(kNaNBits);
      return;
    }
    const uint32_t octave = (range.largest + kExponent / 4) & kInfinityBits;
    const uint32_t bits = (octave < 3 * kExponent ? 3 * kExponent : octave) - 2 * kExponent;
    scale = std::bit_cast<float>(bits);
    inverse = std::bit_cast<float>(254 * kExponent - bits);
  }
  // The format of averages whose squares have this one.
  static constexpr uint32_t format_beside(const SquareCode& squares) {
    return squares.shift <= 18 ? 2u : squares.shift == 19 ? 1u : 0u;
  }

  constexpr bool finite() const { return inverse != 0.0f; }
  constexpr float word() const {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scale) | format);
  }

  constexpr uint8_t encode(float value, uint32_t below) const {
    if (!finite()) return 0;
    const uint32_t scaled = std::bit_cast<uint32_t>(value * inverse), sign = scaled & 0x80000000u;
    const float sum = std::bit_cast<float>(scaled - sign) + offset;
    const uint32_t code = ((std::bit_cast<uint32_t>(sum) + below) >> cut) - base;
    return static_cast<uint8_t>(code | sign >> 24);
  }
  constexpr float decode(uint8_t code) const {
    const float sum = std::bit_cast<float>(((code & 0x7fu) + base) << cut);
    const uint32_t size = std::bit_cast<uint32_t>(sum - offset);
    return std::bit_cast<float>(size | (code & 0x80u) << 24) * scale;
  }

  float scale = 0, inverse = 0, offset;
  uint32_t format, cut, base;

 private:
  // 2^(7 - bits of mantissa) octaves that end at 8.
  explicit constexpr AverageCode(uint32_t format_in)
      : offset(std::bit_cast<float>((130u - (16u >> format_in)) << 23)),
        format(format_in),
        cut(20 - format_in),
        base(std::bit_cast<uint32_t>(offset) >> cut) {}
};

}  // namespace meron::kernels
