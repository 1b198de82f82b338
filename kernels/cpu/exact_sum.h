// SPDX-License-Identifier: Apache-2.0
// A sum of doubles without rounding, hence without order: whoever adds the same numbers, in any
// order and split over any number of threads or ranks, reads the same bits.
//
// The sum is kept as one wide fixed-point number in units of 2^-1074, the smallest double, in
// pieces of 32 bits that each have room to delay their carries. After R. Neal, "Fast exact
// summation using small and large superaccumulators", arXiv:1505.05571.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace meron::kernels {

// A plain value: may be copied as bytes and may live in shared memory, where all bytes zero is an
// empty sum. Not synchronized; 2^63 additions are safe.
class ExactSum {
 public:
  // Takes part in the sum exactly; infinities and NaN are remembered as such.
  void add(double term) {
    const uint64_t bits = std::bit_cast<uint64_t>(term);
    const uint32_t exponent = static_cast<uint32_t>(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 0x7ff) return add_nonfinite(bits);
    if (exponent != 0) mantissa |= uint64_t{1} << 52;
    const uint32_t position = exponent != 0 ? exponent - 1 : 0;  // of the mantissa's lowest bit
    const uint32_t shift = position % 32;
    const uint64_t low = mantissa << shift;
    const uint64_t high = mantissa >> 1 >> (63 - shift);
    const int64_t sign = -static_cast<int64_t>(bits >> 63);  // 0 or -1: negates by xor and subtract
    int64_t* piece = pieces_ + position / 32;
    piece[0] += (static_cast<int64_t>(low & 0xffffffffu) ^ sign) - sign;
    piece[1] += (static_cast<int64_t>(low >> 32) ^ sign) - sign;
    piece[2] += (static_cast<int64_t>(high) ^ sign) - sign;
    if (++pending_ == kMaxPending) carry();
  }

  // Adds everything that was added to `other`, which may be this sum itself.
  void merge(const ExactSum& other);

  // The sum rounded once, to the nearest double, ties to even; an empty sum, or one that cancels,
  // is +0. A NaN added, or infinities of both signs, make it NaN; infinities of one sign make it
  // that infinity.
  double value() const;

 private:
  static constexpr int kPieces = 68;  // 2098 bits of a double's range, and 78 for growth
  static constexpr uint32_t kMaxPending = uint32_t{1} << 16;
  static constexpr uint32_t kPlusInfinity = 1, kMinusInfinity = 2, kNaN = 4;

  void add_nonfinite(uint64_t bits);
  void carry();

  // Value: sum of pieces_[k] * 2^(32 k - 1074). Each piece's magnitude is at most
  // (pending_ + 1) * 2^32, except that the last takes what overflows the one before.
  int64_t pieces_[kPieces] = {};
  uint32_t pending_ = 0;  // additions since carries were last propagated
  uint32_t nonfinite_ = 0;
};

static_assert(std::is_trivially_copyable_v<ExactSum> && std::is_standard_layout_v<ExactSum>);

}  // namespace meron::kernels
