// SPDX-License-Identifier: Apache-2.0
// Block quantization: arrays as 8- or 4-bit integers with one f32 step per block, for the wire and
// for storage. The bytes determine the numbers: every formula below is in single f32 operations, so
// that all targets, and other devices, encode and decode to the same bits.
//
// Encoding a block. v[i] = f32(in[i]), then - f32(minus[i]), then + residual[i], where these are
// given; past the array's end v is 0.
//   t        = v; with `hadamard` each run of 64 of v * 2^-6 is transformed by butterflies of
//              strides h = 1, 2, 4, 8, 16, 32: of each pair (a, b) at distance h, (a + b, a - b).
//              They undo themselves up to a factor of 64: scaled before, no sum of finite values
//              overflows
//   m        = max |t|
//   inverse  = qmax / m, and one ulp less where m * inverse > qmax      qmax = 127 or 7
//   step     = m / qmax, and one ulp less where step * qmax > m: |q * step| never exceeds m
//   q        = t * inverse, rounded to the nearest integer, ties to even; or, when `stochastic`,
//              floor(t * inverse + u) without another rounding: with both sides scaled by 2^24,
//              q = (nearest(t * (inverse * 2^24)) + (quant_hash >> 8)) >> 24 in 32-bit integers
// |q| <= qmax follows. If m < kQuantTiny, the block is encoded as zeros with step 0. If a t is
// infinite or NaN, q is 0 and the step is NaN (0x7fc00000): the block decodes to NaN, never to
// numbers.
//
// Decoding: x[i] = f32(q) * step, and with `hadamard` then the butterflies. x is rounded to the
// output's type as half.h says. With `hadamard` x can exceed the largest |v| by the rounding
// error, so that values within that error of the largest float may decode to infinity.
//
// Bytes of a block: with 8 bits, q of element i is byte i. With 4 bits, each run of 64 elements is
// 32 bytes: byte j holds element j in its low and element j + 32 in its high half. Both are two's
// complement. All blocks' bytes come first, then all steps.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/type.h"

namespace meron::kernels {

struct QuantFormat {
  uint32_t bits = 8;        // 8 or 4
  uint32_t block = 256;     // elements per step: a power of two from kQuantRun to kQuantMaxBlock
  bool stochastic = false;  // round up or down at random so that the mean is right
  bool hadamard = false;    // spread outliers over runs of 64 elements before rounding

  constexpr bool valid() const {
    return (bits == 8 || bits == 4) && std::has_single_bit(block) && block >= 64 && block <= 2048;
  }
  constexpr bool operator==(const QuantFormat&) const = default;
};

inline constexpr size_t kQuantRun = 64;         // what the transform and the 4-bit order work on
inline constexpr size_t kQuantMaxBlock = 2048;  // elements
inline constexpr float kQuantTiny = 0x1p-96f;   // below it an inverse would overflow

constexpr uint64_t encoded_blocks(uint64_t n, QuantFormat format) {
  return n / format.block + (n % format.block != 0 ? 1 : 0);
}
constexpr uint64_t encoded_block_bytes(QuantFormat format) {
  return uint64_t{format.block} * format.bits / 8;
}
constexpr uint64_t encoded_bytes(uint64_t n, QuantFormat format) {
  return encoded_blocks(n, format) * (encoded_block_bytes(format) + sizeof(float));
}

// The position of blocks: the bytes of the first, and its step. Blocks and steps follow one
// another.
struct Encoded {
  std::byte* payload;
  float* steps;
};
struct ConstEncoded {
  ConstEncoded() = default;
  ConstEncoded(const std::byte* payload, const float* steps) : payload(payload), steps(steps) {}
  ConstEncoded(const Encoded& other) : payload(other.payload), steps(other.steps) {}  // NOLINT

  const std::byte* payload = nullptr;
  const float* steps = nullptr;
};

// Splits an encoded array of n elements, at `first_block`. `base` is aligned to 4 bytes.
inline ConstEncoded encoded_at(const void* base, uint64_t n, QuantFormat format,
                               uint64_t first_block = 0) {
  const auto* bytes = static_cast<const std::byte*>(base);
  const uint64_t payload = encoded_blocks(n, format) * encoded_block_bytes(format);
  return {bytes + first_block * encoded_block_bytes(format),
          reinterpret_cast<const float*>(bytes + payload) + first_block};
}
inline Encoded encoded_at(void* base, uint64_t n, QuantFormat format, uint64_t first_block = 0) {
  const ConstEncoded at = encoded_at(static_cast<const void*>(base), n, format, first_block);
  return {const_cast<std::byte*>(at.payload), const_cast<float*>(at.steps)};
}

// Error of an encoding: squares of v - decoded v and of v, and the worst block's |error| / |v|. A
// block that is not finite counts as an infinite error, one below kQuantTiny as no error. It is for
// people and policies. Its bits differ between targets, because sums are taken in f32 within a
// block, in units of the block's step: norms of errors differ by less than 1e-4 of their value plus
// 1e-6 of |v|. A block's padding counts too.
struct QuantError {
  double error_squares = 0, squares = 0;
  float worst_block = 0;

  MERON_HOST_DEVICE void add_block(double error_square, double square) {
    error_squares += error_square;
    squares += square;
    if (square <= 0 && error_square <= 0) return;
    const auto ratio = static_cast<float>(std::sqrt(error_square / square));
    if (ratio > worst_block) worst_block = ratio;
  }
  MERON_HOST_DEVICE void merge(const QuantError& other) {
    error_squares += other.error_squares;
    squares += other.squares;
    if (other.worst_block > worst_block) worst_block = other.worst_block;
  }
  double relative() const { return error_squares > 0 ? std::sqrt(error_squares / squares) : 0; }
};

// For all of these: each array is read once; arrays are aligned to their element and do not overlap
// otherwise than said; what is written reaches full blocks of an encoded array, and n elements of
// any other. Large outputs are written past the caches (copy.h). Any number of threads may work on
// parts of an array that begin at multiples of the block (and of kBlock).

// Encodes n elements. Element i has number first_element + i in the encoded array. This number and
// `seed` determine its stochastic rounding; first_element is a multiple of kQuantRun. `residual`
// keeps the error for the next encoding: residual = (beta * residual) + ((1 - beta) * (v - decoded
// v)), all f32; 0 in a block that is not finite. With `error`, the error is added to it.
void quantize(Encoded out, const void* in, Type type, size_t n, QuantFormat format, uint64_t seed,
              uint64_t first_element, const void* minus = nullptr, float* residual = nullptr,
              float beta = 0, QuantError* error = nullptr);

// out = in, or with `add` out = f32(out) + in, rounded once.
void dequantize(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                bool add = false, bool handed_over = false);

// reduce() of the inputs decoded to f32: the same order and the same sum of squares.
void dequantize_sum(float* out, bool accumulate, const ConstEncoded* in, size_t count, float scale,
                    size_t n, QuantFormat format, ExactSum* squares, bool handed_over = false);

// quantize() of dequantize_sum(), without the f32 array in between. `out` may be the very same
// blocks as an input when both formats are equal.
void dequantize_sum_quantize(Encoded out, const ConstEncoded* in, size_t count, float scale,
                             size_t n, QuantFormat in_format, QuantFormat out_format, uint64_t seed,
                             uint64_t first_element, QuantError* error = nullptr);

}  // namespace meron::kernels
