// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace meron::kernels {
namespace {

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ExactSum sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum;
}

// The same by a slow and obvious method: one counter per binary digit.
double nearest_to_sum(const std::vector<double>& terms) {
  constexpr int kLowest = -1074;
  std::vector<int64_t> digits(2300, 0);
  for (const double term : terms) {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(term), &exponent);
    auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
    for (int at = exponent - 53 - kLowest; mantissa != 0; mantissa >>= 1, ++at) {
      if ((mantissa & 1) != 0) digits[static_cast<size_t>(at)] += term < 0 ? -1 : 1;
    }
  }
  const auto carry = [&] {
    int64_t over = 0;
    for (int64_t& digit : digits) {
      digit += over;
      over = digit >> 1;
      digit &= 1;
    }
    return over;
  };
  const bool negative = carry() < 0;
  if (negative) {
    for (int64_t& digit : digits) digit = -digit;
    carry();
  }
  int top = static_cast<int>(digits.size()) - 1;
  while (top >= 0 && digits[static_cast<size_t>(top)] == 0) --top;
  const int lowest = std::max(top - 52, 0);
  uint64_t mantissa = 0;
  for (int at = top; at >= lowest; --at) {
    mantissa = mantissa << 1 | static_cast<uint64_t>(digits[static_cast<size_t>(at)]);
  }
  const bool half = lowest > 0 && digits[static_cast<size_t>(lowest) - 1] != 0;
  bool more = false;
  for (int at = 0; at < lowest - 1; ++at) more = more || digits[static_cast<size_t>(at)] != 0;
  if (half && (more || (mantissa & 1) != 0)) ++mantissa;
  const double magnitude = std::ldexp(static_cast<double>(mantissa), lowest + kLowest);
  return negative ? -magnitude : magnitude;
}

std::vector<double> random_terms(std::mt19937_64& random, size_t count, int spread) {
  std::uniform_int_distribution<int> exponent(-spread, spread);
  std::vector<double> terms(count);
  for (double& term : terms) {
    const auto mantissa = static_cast<double>(static_cast<int64_t>(random()) >> 10);
    term = std::ldexp(mantissa, exponent(random) - 53);
  }
  return terms;
}

TEST(ExactSum, IsEmptyAtFirstAndWhenItsBytesAreZero) {
  EXPECT_EQ(std::bit_cast<uint64_t>(ExactSum().value()), 0u);
  ExactSum zeroed = sum_of({1.0, -3.5});
  std::memset(static_cast<void*>(&zeroed), 0, sizeof(zeroed));
  EXPECT_EQ(std::bit_cast<uint64_t>(zeroed.value()), 0u);
}

TEST(ExactSum, OneTermComesBackUnchanged) {
  std::mt19937_64 random(1);
  for (const double term : {1.0, -1.0, kMax, -kMax, kTiny, -kTiny, 0x1p-1022,
                            0x1.fffffffffffffp-1023, 0x1p-1021, 0x1p1023, 0.1}) {
    EXPECT_EQ(sum_of({term}).value(), term);
  }
  for (int i = 0; i < 100000; ++i) {
    const double term = std::bit_cast<double>(random());
    if (!std::isfinite(term)) continue;
    ASSERT_EQ(sum_of({term}).value(), term);
  }
}

// For two terms IEEE addition is itself correctly rounded.
TEST(ExactSum, TwoTermsAgreeWithTheProcessor) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 300000; ++i) {
    const double a = std::bit_cast<double>(random());
    const auto near = static_cast<int64_t>(random() % 120) - 60;
    double b = std::ldexp(std::bit_cast<double>((random() >> 12) | 0x3ff0000000000000u),
                          static_cast<int>(near));
    if (!std::isfinite(a)) continue;
    int exponent = 0;
    std::frexp(a, &exponent);
    b = std::ldexp((random() & 1) != 0 ? b : -b, exponent);
    if (!std::isfinite(b)) continue;
    ASSERT_EQ(sum_of({a, b}).value(), a + b) << std::hexfloat << a << " + " << b;
  }
}

TEST(ExactSum, ManyTermsAgreeWithExactArithmetic) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 400; ++i) {
    const int spread = i % 4 == 0 ? 5 : i % 4 == 1 ? 60 : i % 4 == 2 ? 300 : 1020;
    std::vector<double> terms = random_terms(random, 1 + random() % 60, spread);
    ASSERT_EQ(sum_of(terms).value(), nearest_to_sum(terms));
    // Cancels all but the smallest part.
    const size_t half = terms.size();
    for (size_t k = 1; k < half; ++k) terms.push_back(-terms[k]);
    ASSERT_EQ(sum_of(terms).value(), terms[0]);
  }
}

TEST(ExactSum, RoundsOnceToNearestEven) {
  EXPECT_EQ(sum_of({1.0, 0x1p-53}).value(), 1.0);                     // tie, to even
  EXPECT_EQ(sum_of({1.0, 0x1p-52, 0x1p-53}).value(), 1.0 + 0x1p-51);  // tie, to even
  EXPECT_EQ(sum_of({1.0, 0x1p-53, kTiny}).value(), 1.0 + 0x1p-52);    // just above the tie
  EXPECT_EQ(sum_of({1.0, 0x1p-53, -kTiny}).value(), 1.0);             // just below
  EXPECT_EQ(sum_of({-1.0, -0x1p-53, -kTiny}).value(), -1.0 - 0x1p-52);
  EXPECT_EQ(sum_of({0x1.fffffffffffffp0, 0x1p-53}).value(), 2.0);  // carries into the exponent
}

TEST(ExactSum, TheOrderDoesNotMatter) {
  std::mt19937_64 random(4);
  std::vector<double> terms = random_terms(random, 3000, 400);
  const uint64_t expected = std::bit_cast<uint64_t>(sum_of(terms).value());
  for (int i = 0; i < 20; ++i) {
    std::shuffle(terms.begin(), terms.end(), random);
    ASSERT_EQ(std::bit_cast<uint64_t>(sum_of(terms).value()), expected);
  }
}

TEST(ExactSum, MergingEqualsAdding) {
  std::mt19937_64 random(5);
  const std::vector<double> terms = random_terms(random, 3000, 400);
  const uint64_t expected = std::bit_cast<uint64_t>(sum_of(terms).value());
  for (int i = 0; i < 20; ++i) {
    std::vector<ExactSum> parts(1 + random() % 9);
    for (const double term : terms) parts[random() % parts.size()].add(term);
    ExactSum total;
    for (const ExactSum& part : parts) total.merge(part);
    ASSERT_EQ(std::bit_cast<uint64_t>(total.value()), expected);
  }
}

TEST(ExactSum, MergingWithItselfDoublesBeyondEveryCarry) {
  ExactSum sum = sum_of({0x1.23456789abcdep100, -0x1.8p-300});
  ExactSum negative = sum_of({-0x1.23456789abcdep-600});
  for (int i = 0; i < 200; ++i) {
    sum.merge(sum);
    negative.merge(negative);
  }
  EXPECT_EQ(sum.value(), 0x1.23456789abcdep300);
  EXPECT_EQ(negative.value(), -0x1.23456789abcdep-400);
}

// Past the number of additions after which carries must be propagated, at both ends of the range.
TEST(ExactSum, MillionsOfAdditionsAreExact) {
  ExactSum ones, tinies, mixed;
  constexpr int kCount = 3'000'001;
  for (int i = 0; i < kCount; ++i) {
    ones.add(-0x1.fffffffffffffp0);
    tinies.add(kTiny);
    mixed.add(i % 2 == 0 ? kMax : -kMax);
  }
  EXPECT_EQ(ones.value(), -0x1.fffffffffffffp0 * kCount);
  EXPECT_EQ(tinies.value(), kTiny * kCount);
  EXPECT_EQ(mixed.value(), kMax);
  // 0x1.fffffffffffffp0 * kCount is inexact; after subtracting all but one, one remains.
  for (int i = 0; i < kCount - 1; ++i) ones.add(0x1.fffffffffffffp0);
  EXPECT_EQ(ones.value(), -0x1.fffffffffffffp0);
}

TEST(ExactSum, OverflowIsThatOfTheResultOnly) {
  EXPECT_EQ(sum_of({kMax, kMax, -kMax}).value(), kMax);
  EXPECT_EQ(sum_of({kMax, kMax}).value(), kInfinity);
  EXPECT_EQ(sum_of({-kMax, -kMax}).value(), -kInfinity);
  EXPECT_EQ(sum_of({kMax, 0x1p969}).value(), kMax);       // below half a unit above
  EXPECT_EQ(sum_of({kMax, 0x1p970}).value(), kInfinity);  // half a unit: a tie, to even
}

TEST(ExactSum, ZerosAndCancellationGivePlusZero) {
  for (const auto& terms :
       {std::vector<double>{-0.0}, {-0.0, -0.0}, {3.0, -3.0}, {kTiny, -kTiny}}) {
    EXPECT_EQ(std::bit_cast<uint64_t>(sum_of(terms).value()), 0u);
  }
}

TEST(ExactSum, NonfiniteTermsAreRemembered) {
  EXPECT_EQ(sum_of({1.0, kInfinity, -kMax}).value(), kInfinity);
  EXPECT_EQ(sum_of({-kInfinity, kMax}).value(), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, 1.0, -kInfinity}).value()));
  EXPECT_TRUE(std::isnan(sum_of({std::nan(""), kInfinity}).value()));
  EXPECT_TRUE(std::isnan(sum_of({1.0, -std::nan("")}).value()));
  ExactSum total = sum_of({1.0});
  total.merge(sum_of({kInfinity}));
  EXPECT_EQ(total.value(), kInfinity);
  total.merge(sum_of({-kInfinity}));
  EXPECT_TRUE(std::isnan(total.value()));
}

// Added piece by piece, by parties that know nothing of each other's carries.
TEST(ExactSum, PiecesAddUpToTheSum) {
  std::mt19937_64 random(6);
  const std::vector<double> terms = random_terms(random, 3000, 400);
  ExactPieces pieces{};
  for (const double value : terms) {
    const ExactTerm term(value);
    for (int i = 0; i < 3; ++i) pieces.pieces[term.first + i] += term.part[i];
    pieces.nonfinite |= term.nonfinite;
  }
  const ExactSum sum = sum_of(terms), from_pieces(pieces);
  EXPECT_EQ(std::bit_cast<uint64_t>(from_pieces.value()), std::bit_cast<uint64_t>(sum.value()));
  const ExactPieces other = sum_of({kTiny, -kMax, kInfinity}).pieces();
  for (int k = 0; k < ExactPieces::kCount; ++k) pieces.pieces[k] += other.pieces[k];
  ExactSum expected = sum;
  expected.merge(sum_of({kTiny, -kMax}));
  EXPECT_EQ(ExactSum(pieces).value(), expected.value());
  EXPECT_EQ(ExactSum(other).value(), kInfinity);
  EXPECT_EQ(ExactSum(sum.pieces()).value(), sum.value());
}

TEST(ExactSum, PiecesMayBeAnyNumbers) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ExactPieces pieces{};
  for (int k = 10; k < 20; ++k) pieces.pieces[k] = kMost;
  double expected = 0;
  for (int k = 19; k >= 10; --k) expected += std::ldexp(0x1p63, 32 * k - 1074);
  EXPECT_NEAR(ExactSum(pieces).value() / expected, 1.0, 1e-15);
  ExactPieces negative{};
  for (int k = 10; k < 20; ++k) negative.pieces[k] = -kMost;
  ExactSum both(pieces);
  both.merge(ExactSum(negative));
  EXPECT_EQ(both.value(), 0.0);
  for (int k = 10; k < 20; ++k) negative.pieces[k] = std::numeric_limits<int64_t>::min();
  EXPECT_NEAR(ExactSum(negative).value() / expected, -1.0, 1e-15);
}

}  // namespace
}  // namespace meron::kernels
