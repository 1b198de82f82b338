// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/exact_sum.h"

#include <cmath>
#include <limits>

namespace meron::kernels {

void ExactSum::add_nonfinite(uint64_t bits) {
  const bool infinity = (bits & ((uint64_t{1} << 52) - 1)) == 0;
  nonfinite_ |= !infinity ? kNaN : (bits >> 63) != 0 ? kMinusInfinity : kPlusInfinity;
}

// Brings every piece but the last into [0, 2^32); the last carries the sign.
void ExactSum::carry() {
  for (int k = 0; k + 1 < kPieces; ++k) {
    const int64_t upper = pieces_[k] >> 32;  // rounds down, also below zero
    pieces_[k] -= upper * (int64_t{1} << 32);
    pieces_[k + 1] += upper;
  }
  pending_ = 0;
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum term = other;
  term.carry();
  if (pending_ + 2 >= kMaxPending) carry();
  for (int k = 0; k < kPieces; ++k) pieces_[k] += term.pieces_[k];
  pending_ += 1;
  nonfinite_ |= term.nonfinite_;
}

double ExactSum::value() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if ((nonfinite_ & kNaN) != 0 || nonfinite_ == (kPlusInfinity | kMinusInfinity)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (nonfinite_ != 0) return nonfinite_ == kPlusInfinity ? kInfinity : -kInfinity;

  ExactSum sum = *this;
  sum.carry();
  const bool negative = sum.pieces_[kPieces - 1] < 0;
  if (negative) {
    for (int64_t& piece : sum.pieces_) piece = -piece;
    sum.carry();
  }
  int top = kPieces - 1;
  while (top > 0 && sum.pieces_[top] == 0) --top;
  const auto piece = [&](int k) { return k < 0 ? 0 : static_cast<uint64_t>(sum.pieces_[k]); };

  // A sum that reaches the last two pieces is beyond every double.
  if (top >= kPieces - 2) return negative ? -kInfinity : kInfinity;
  if (piece(top) == 0) return 0.0;

  // `window`: the 64 bits from the leading one down; `lowest`: the position of its last bit, which
  // for a small sum lies below the unit, where the bits are zero.
  const int leading = 31 - std::countl_zero(static_cast<uint32_t>(piece(top)));
  const uint64_t below = piece(top - 1) << 32 | piece(top - 2);
  uint64_t window = piece(top) << (63 - leading) | below >> leading >> 1;
  bool sticky = (below << (63 - leading)) != 0;
  for (int k = top - 3; k >= 0 && !sticky; --k) sticky = sum.pieces_[k] != 0;
  const int lowest = 32 * top + leading - 63;

  // Keep 53 bits. Where the sum has fewer, the 11 that go are zero and nothing is rounded, so that
  // a subnormal result is exact.
  const uint64_t rest = window & 0x7ff;
  window >>= 11;
  if (rest > 0x400 || (rest == 0x400 && (sticky || (window & 1) != 0))) ++window;
  const double magnitude = std::ldexp(static_cast<double>(window), lowest + 11 - 1074);
  return negative ? -magnitude : magnitude;
}

}  // namespace meron::kernels
