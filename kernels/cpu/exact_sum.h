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
#include <limits>
#include <type_traits>

#include "kernels/cpu/type.h"

namespace meron::kernels {

// A sum as its pieces: the value is that of all pieces[k] * 2^(32 k - 1074). Adding two piece by
// piece adds the sums, so that whoever cannot synchronize otherwise adds with integer atomics. All
// bytes zero is an empty sum.
struct ExactPieces {
  static constexpr int kCount = 68;  // 2098 bits of a double's range, and 78 for growth
  static constexpr uint32_t kPlusInfinity = 1, kMinusInfinity = 2, kNaN = 4;

  int64_t pieces[kCount];
  uint32_t nonfinite;  // of the terms: bits of the above, joined by or
  uint32_t unused;
};

// A double as pieces: `part` is for pieces[first], [first + 1] and [first + 2], each below 2^32 in
// magnitude. Not finite: only `nonfinite` says what it is.
struct ExactTerm {
  MERON_HOST_DEVICE explicit ExactTerm(double term) {
    const uint64_t bits = std::bit_cast<uint64_t>(term);
    const uint32_t exponent = static_cast<uint32_t>(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 0x7ff) {
      nonfinite = mantissa != 0       ? ExactPieces::kNaN
                  : (bits >> 63) != 0 ? ExactPieces::kMinusInfinity
                                      : ExactPieces::kPlusInfinity;
      return;
    }
    if (exponent != 0) mantissa |= uint64_t{1} << 52;
    const uint32_t position = exponent != 0 ? exponent - 1 : 0;  // of the mantissa's lowest bit
    const uint32_t shift = position % 32;
    const uint64_t low = mantissa << shift;
    const uint64_t high = mantissa >> 1 >> (63 - shift);
    const int64_t sign = -static_cast<int64_t>(bits >> 63);  // 0 or -1: negates by xor and subtract
    first = position / 32;
    part[0] = (static_cast<int64_t>(low & 0xffffffffu) ^ sign) - sign;
    part[1] = (static_cast<int64_t>(low >> 32) ^ sign) - sign;
    part[2] = (static_cast<int64_t>(high) ^ sign) - sign;
  }

  uint32_t first = 0;
  uint32_t nonfinite = 0;
  int64_t part[3] = {};
};

// A plain value: may be copied as bytes and may live in shared memory, where all bytes zero is an
// empty sum. Not synchronized; 2^63 additions are safe.
class ExactSum {
 public:
  ExactSum() = default;
  // Whatever the pieces' size.
  MERON_HOST_DEVICE explicit ExactSum(const ExactPieces& from) : nonfinite_(from.nonfinite) {
    for (int k = 0; k < kPieces; ++k) pieces_[k] = from.pieces[k];
    carry();
  }

  // Takes part in the sum exactly; infinities and NaN are remembered as such.
  MERON_HOST_DEVICE void add(double value) {
    const ExactTerm term(value);
    nonfinite_ |= term.nonfinite;
    int64_t* piece = pieces_ + term.first;
    piece[0] += term.part[0];
    piece[1] += term.part[1];
    piece[2] += term.part[2];
    if (++pending_ == kMaxPending) carry();
  }

  // Adds everything that was added to `other`, which may be this sum itself.
  MERON_HOST_DEVICE void merge(const ExactSum& other) {
    ExactSum term = other;
    term.carry();
    if (pending_ + 2 >= kMaxPending) carry();
    for (int k = 0; k < kPieces; ++k) pieces_[k] += term.pieces_[k];
    pending_ += 1;
    nonfinite_ |= term.nonfinite_;
  }

  // Every piece but the last is in [0, 2^32).
  MERON_HOST_DEVICE ExactPieces pieces() const {
    ExactSum sum = *this;
    sum.carry();
    ExactPieces out{};
    for (int k = 0; k < kPieces; ++k) out.pieces[k] = sum.pieces_[k];
    out.nonfinite = nonfinite_;
    return out;
  }

  // True if an infinity or a NaN was added.
  MERON_HOST_DEVICE bool nonfinite() const { return nonfinite_ != 0; }

  // The sum rounded once, to the nearest double, ties to even; an empty sum, or one that cancels,
  // is +0. A NaN added, or infinities of both signs, make it NaN; infinities of one sign make it
  // that infinity.
  MERON_HOST_DEVICE double value() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr uint32_t kBoth = ExactPieces::kPlusInfinity | ExactPieces::kMinusInfinity;
    if ((nonfinite_ & ExactPieces::kNaN) != 0 || nonfinite_ == kBoth) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (nonfinite_ != 0) {
      return nonfinite_ == ExactPieces::kPlusInfinity ? kInfinity : -kInfinity;
    }
    ExactSum sum = *this;
    sum.carry();
    const bool negative = sum.pieces_[kPieces - 1] < 0;
    if (negative) {
      for (int64_t& piece : sum.pieces_) piece = -piece;
      sum.carry();
    }
    int top = kPieces - 1;
    while (top > 0 && sum.pieces_[top] == 0) --top;
    // A sum that reaches the last two pieces is beyond every double.
    if (top >= kPieces - 2) return negative ? -kInfinity : kInfinity;
    if (sum.pieces_[top] == 0) return 0.0;
    const double magnitude = sum.rounded(top);
    return negative ? -magnitude : magnitude;
  }

 private:
  static constexpr int kPieces = ExactPieces::kCount;
  static constexpr uint32_t kMaxPending = uint32_t{1} << 16;

  // Carries, so that every piece but the last is in [0, 2^32); the last has the sign. Halves are
  // added, so that a piece may be any number.
  MERON_HOST_DEVICE void carry() {
    int64_t upper = 0;
    for (int k = 0; k + 1 < kPieces; ++k) {
      const int64_t lower = (pieces_[k] & 0xffffffff) + upper;
      upper = (pieces_[k] >> 32) + (lower >> 32);  // rounds down, also below zero
      pieces_[k] = lower & 0xffffffff;
    }
    pieces_[kPieces - 1] += upper;
    pending_ = 0;
  }

  // The value of a sum that is positive, whose carries are propagated and whose first piece that is
  // not zero is `top`.
  MERON_HOST_DEVICE double rounded(int top) const {
    const uint64_t first = static_cast<uint64_t>(pieces_[top]);
    const uint64_t second = top < 1 ? 0 : static_cast<uint64_t>(pieces_[top - 1]);
    const uint64_t third = top < 2 ? 0 : static_cast<uint64_t>(pieces_[top - 2]);

    // `window`: the 64 bits from the leading one down; `lowest`: the position of its last bit,
    // which for a small sum is below the unit, where the bits are zero.
    const int leading = 31 - std::countl_zero(static_cast<uint32_t>(first));
    const uint64_t below = second << 32 | third;
    uint64_t window = first << (63 - leading) | below >> leading >> 1;
    bool sticky = (below << (63 - leading)) != 0;
    for (int k = top - 3; k >= 0 && !sticky; --k) sticky = pieces_[k] != 0;
    const int lowest = 32 * top + leading - 63;

    // Keep 53 bits. Where the sum has fewer, the 11 that go are zero and nothing is rounded, so
    // that a subnormal result is exact.
    const uint64_t rest = window & 0x7ff;
    window >>= 11;
    if (rest > 0x400 || (rest == 0x400 && (sticky || (window & 1) != 0))) ++window;
    // By two powers of two, for the one may not be a double: either product is exact, or infinite.
    const int exponent = lowest + 11 - 1074, half = exponent / 2;
    return static_cast<double>(window) * power_of_two(half) * power_of_two(exponent - half);
  }

  static constexpr double power_of_two(int exponent) {
    return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
  }

  // Value: sum of pieces_[k] * 2^(32 k - 1074). Each piece's magnitude is at most
  // (pending_ + 1) * 2^32, except that the last takes what overflows the one before.
  int64_t pieces_[kPieces] = {};
  uint32_t pending_ = 0;  // additions since carries were last propagated
  uint32_t nonfinite_ = 0;
};

static_assert(std::is_trivially_copyable_v<ExactSum> && std::is_standard_layout_v<ExactSum>);
static_assert(std::is_trivially_copyable_v<ExactPieces>);

}  // namespace meron::kernels
