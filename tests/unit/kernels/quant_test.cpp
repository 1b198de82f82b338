// SPDX-License-Identifier: Apache-2.0
// What encoding promises, on every target. Decoding: dequantize_test.cpp; sums: quant_sum_test.cpp.
#include "kernels/cpu/quant.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/copy.h"
#include "quant_array.h"
#include "targets.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(Quantize);

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

// As quant.h limits the difference; both are norms, of an error and of |v|.
void expect_near(double actual, double expected, double norm) {
  if (std::isfinite(expected)) {
    EXPECT_NEAR(actual, expected, 1e-4 * expected + 1e-6 * norm);
  } else {
    EXPECT_EQ(actual, expected);
  }
}

struct Extras {
  bool minus, residual, error;
};

void expect_reference(Type type, QuantFormat format, size_t n, size_t offset, Extras extras) {
  SCOPED_TRACE(testing::Message() << name_of(type) << ", " << format << ", " << n
                                  << " elements, minus " << extras.minus << ", residual "
                                  << extras.residual << ", error " << extras.error);
  const uint64_t seed = 77 + n, first = (uint64_t{1} << 32) - 128;  // the number's halves change
  Array in(type, n, offset), minus(type, n, offset + 1), residual(Type::f32, n, offset);
  fill_blocks(in, static_cast<uint32_t>(n), format);
  fill(minus, 5, false);
  fill(residual, 6, false);
  Array expected_residual(residual);
  CodeArray actual(n, format), expected(n, format);
  QuantError error, expected_error;
  const void* subtrahend = extras.minus ? minus.data() : nullptr;
  quantize(actual.at(), in.data(), type, n, format, seed, first, subtrahend,
           extras.residual ? residual.f32() : nullptr, 0.7f, extras.error ? &error : nullptr);
  quantize_reference(expected.at(), in.data(), type, n, format, seed, first, subtrahend,
                     extras.residual ? expected_residual.f32() : nullptr, 0.7f, &expected_error);
  ASSERT_TRUE(same(actual, expected));
  ASSERT_TRUE(same(residual, expected_residual));
  if (!extras.error) return;
  const double norm = std::sqrt(expected_error.squares);
  expect_near(std::sqrt(error.error_squares), std::sqrt(expected_error.error_squares), norm);
  expect_near(std::sqrt(error.squares), norm, norm);
  expect_near(error.worst_block, expected_error.worst_block, 1);
}

TEST_P(Quantize, EveryTypeFormatAndSizeEqualsTheReference) {
  for (const QuantFormat format : formats({64, 128, 256, 2048})) {
    for (const size_t n : sizes_around(format.block)) {
      for (const Type type : kTypes) {
        expect_reference(type, format, n, n % 3, {false, false, false});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Quantize, DifferencesFeedbackAndErrorsEqualTheReference) {
  for (const QuantFormat format : formats({64, 512})) {
    for (const size_t n : sizes_around(format.block)) {
      for (const Type type : kTypes) {
        for (const Extras extras : {Extras{true, false, false}, Extras{false, true, false},
                                    Extras{false, false, true}, Extras{true, true, true}}) {
          expect_reference(type, format, n, n % 3, extras);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Large payloads take another way to memory.
TEST_P(Quantize, LargeArraysEqualTheReference) {
  for (const uint32_t bits : {8u, 4u}) {
    const size_t n = kStreamBytes * 8 / bits + 300;
    expect_reference(Type::bf16, {bits, 256}, n, 0, {false, false, false});
    expect_reference(Type::bf16, {bits, 64}, n, 1, {false, true, true});
    if (HasFatalFailure()) return;
  }
}

TEST_P(Quantize, PartsYieldTheBytesOfTheWhole) {
  for (const QuantFormat format : formats({64, 256})) {
    constexpr size_t kN = 2000;
    Array in(Type::bf16, kN);
    fill(in, 3, false);
    CodeArray whole(kN, format), parts(kN, format);
    quantize(whole.at(), in.data(), Type::bf16, kN, format, 9, 512);
    for (size_t begin = 0; begin < kN; begin += 512) {
      quantize(parts.at(begin / format.block), in.at(begin), Type::bf16,
               std::min<size_t>(512, kN - begin), format, 9, 512 + begin);
    }
    ASSERT_TRUE(same(parts, whole)) << format;
  }
}

// Decoded in f32, |v - decoded| is at most half a step, or less than a step at random; plus what
// rounding v * inverse and q * step can add.
TEST_P(Quantize, TheErrorIsBounded) {
  for (const QuantFormat format : formats({64, 256})) {
    if (format.hadamard) continue;
    constexpr size_t kN = 5000;
    Array in(Type::f32, kN), out(Type::f32, kN);
    fill(in, 11, false);
    CodeArray code(kN, format);
    quantize(code.at(), in.data(), Type::f32, kN, format, 1, 0);
    dequantize(out.data(), Type::f32, code.at(), kN, format);
    for (size_t i = 0; i < kN; ++i) {
      const size_t block = i / format.block * format.block;
      float largest = 0;
      for (size_t j = block; j < std::min(kN, block + format.block); ++j) {
        largest = std::max(largest, std::fabs(in.get(j)));
      }
      const float step = code.step(i / format.block), lost = std::fabs(in.get(i) - out.get(i));
      ASSERT_LE(lost, (format.stochastic ? 1.0f : 0.5f) * step + largest * 0x1p-22f) << format;
      ASSERT_LE(std::fabs(out.get(i)), largest) << format;
      ASSERT_NEAR(step, largest / qmax_of(format), step * 1e-6) << format;
    }
  }
}

// Outliers are what the transform is for: one in each run leaves its neighbours nothing otherwise.
TEST_P(Quantize, TheTransformSpreadsOutliers) {
  constexpr size_t kN = 4096;
  Array in(Type::f32, kN);
  fill(in, 12, false);
  for (size_t i = 0; i < kN; ++i) in.set(i, in.get(i) / 16 + (i % 256 == 17 ? 20.0f : 0));
  QuantError plain, smooth;
  for (const bool hadamard : {false, true}) {
    const QuantFormat format{4, 256, false, hadamard};
    CodeArray code(kN, format);
    quantize(code.at(), in.data(), Type::f32, kN, format, 0, 0, nullptr, nullptr, 0,
             hadamard ? &smooth : &plain);
  }
  EXPECT_LT(smooth.relative(), 0.8 * plain.relative());
}

// A sum of 64 values of 1e38 is no float.
TEST_P(Quantize, TheTransformDoesNotOverflow) {
  constexpr size_t kN = 256;
  for (const QuantFormat format : formats({64, 256})) {
    if (!format.hadamard) continue;
    for (const bool equal : {false, true}) {
      Array in(Type::f32, kN), out(Type::f32, kN);
      fill(in, 13, false);
      for (size_t i = 0; i < kN; ++i) {
        in.set(i, equal || in.get(i) > 0 ? 1e38f : -1e38f);
      }
      CodeArray code(kN, format);
      QuantError error;
      quantize(code.at(), in.data(), Type::f32, kN, format, 0, 0, nullptr, nullptr, 0, &error);
      dequantize(out.data(), Type::f32, code.at(), kN, format);
      for (size_t i = 0; i < kN; ++i) {
        ASSERT_NEAR(out.get(i), in.get(i), format.bits == 8 ? 6e36 : 8e37) << format << " " << i;
      }
      EXPECT_LT(error.relative(), format.bits == 8 ? 0.05 : 0.5) << format;
    }
  }
}

// Blocks that are equal up to a power of two have the same integers: the transform's scale, which
// keeps sums of huge values finite, takes no bit of others.
TEST_P(Quantize, IntegersDoNotDependOnTheMagnitude) {
  constexpr size_t kN = 512;
  for (const QuantFormat format : formats({64, 256})) {
    Array in(Type::f32, kN), scaled(Type::f32, kN);
    fill(in, 14, false);
    CodeArray first(kN, format), second(kN, format);
    quantize(first.at(), in.data(), Type::f32, kN, format, 3, 0);
    for (const int power : {-60, 60, 110}) {
      for (size_t i = 0; i < kN; ++i) scaled.set(i, std::ldexp(in.get(i), power));
      quantize(second.at(), scaled.data(), Type::f32, kN, format, 3, 0);
      for (size_t i = 0; i < kN; ++i) ASSERT_EQ(second.q(i), first.q(i)) << format << " " << power;
    }
  }
}

// Integers of the format, times a step that is exact: the same bytes come back for ever.
TEST_P(Quantize, WhatWasDecodedEncodesToTheSameBytes) {
  for (const uint32_t bits : {8u, 4u}) {
    for (const uint32_t block : {64u, 256u, 1024u}) {
      const QuantFormat format{bits, block};
      constexpr size_t kN = 40000;
      Array in(Type::f32, kN), out(Type::f32, kN);
      fill(in, bits + block, false);
      CodeArray first(kN, format), second(kN, format);
      quantize(first.at(), in.data(), Type::f32, kN, format, 0, 0);
      dequantize(out.data(), Type::f32, first.at(), kN, format);
      quantize(second.at(), out.data(), Type::f32, kN, format, 0, 0);
      ASSERT_TRUE(same(second, first)) << format;
    }
  }
}

// Every element of a block is between two integers; over many seeds the mean must be right. The
// first element alone determines the step.
TEST_P(Quantize, StochasticRoundingIsUnbiased) {
  constexpr size_t kN = 256, kTrials = 2000;
  for (const uint32_t bits : {8u, 4u}) {
    const QuantFormat format{bits, 256, true};
    Array in(Type::f32, kN);
    for (size_t i = 0; i < kN; ++i) {
      in.set(i, qmax_of(format) * (i == 0 ? 1.0f : std::sin(static_cast<float>(i))));
    }
    std::vector<double> sum(kN);
    for (size_t trial = 0; trial < kTrials; ++trial) {
      CodeArray code(kN, format);
      quantize(code.at(), in.data(), Type::f32, kN, format, trial, 0);
      for (size_t i = 0; i < kN; ++i) sum[i] += code.q(i);
    }
    double total = 0;
    for (size_t i = 0; i < kN; ++i) {
      const double bias = sum[i] / kTrials - static_cast<double>(in.get(i));
      ASSERT_LT(std::fabs(bias), 0.5 / std::sqrt(kTrials) * 5) << i;  // five deviations
      total += bias;
    }
    EXPECT_LT(std::fabs(total), 0.5 / std::sqrt(kTrials) * 5 * std::sqrt(kN));
  }
}

// Values that an integer represents exactly do not change, and neighbours are independent: the
// result depends on the element's number, not on its position in a call.
TEST_P(Quantize, StochasticRoundingDependsOnTheSeedAndTheNumber) {
  constexpr size_t kN = 4096;
  const QuantFormat format{8, 256, true};
  Array whole(Type::f32, kN), halves(Type::f32, kN);
  for (size_t i = 0; i < kN; ++i) {
    whole.set(i, i % 256 == 0 ? 127.0f : static_cast<float>(i % 200) - 100.0f);
    halves.set(i, i % 256 == 0 ? 127.0f : 0.5f);
  }
  CodeArray code(kN, format), other(kN, format), moved(kN, format);
  quantize(code.at(), whole.data(), Type::f32, kN, format, 1, 0);
  for (size_t i = 0; i < kN; ++i) ASSERT_EQ(code.q(i), static_cast<int>(whole.get(i)));
  quantize(code.at(), halves.data(), Type::f32, kN, format, 1, 0);
  quantize(other.at(), halves.data(), Type::f32, kN, format, 2, 0);
  quantize(moved.at(), halves.data(), Type::f32, kN, format, 1, uint64_t{1} << 32);
  size_t as_other = 0, as_moved = 0, as_next = 0;
  for (size_t i = 0; i + 1 < kN; ++i) {
    as_other += code.q(i) == other.q(i);
    as_moved += code.q(i) == moved.q(i);
    as_next += code.q(i) == code.q(i + 1);
  }
  for (const size_t equal : {as_other, as_moved, as_next}) EXPECT_NEAR(equal, kN / 2, 200);
}

TEST_P(Quantize, BlocksThatAreNotFiniteDecodeToNaNAndNoOther) {
  for (const QuantFormat format : formats({64, 256})) {
    for (const float bad : {kFloatInfinity, -kFloatInfinity, std::nanf("")}) {
      const size_t n = 3 * format.block;
      Array in(Type::bf16, n), out(Type::bf16, n), residual(Type::f32, n);
      fill(in, 4, false);
      in.set(format.block + 5, bad);
      CodeArray code(n, format);
      QuantError error;
      quantize(code.at(), in.data(), Type::bf16, n, format, 0, 0, nullptr, residual.f32(), 0.5f,
               &error);
      dequantize(out.data(), Type::bf16, code.at(), n, format);
      for (size_t i = 0; i < n; ++i) {
        const bool in_block = i / format.block == 1;
        ASSERT_EQ(std::isnan(out.get(i)), in_block) << format << ' ' << i;
        ASSERT_TRUE(std::isfinite(residual.get(i)));
        ASSERT_TRUE(!in_block || code.q(i) == 0);
      }
      EXPECT_EQ(std::bit_cast<uint32_t>(code.step(1)), 0x7fc00000u);
      EXPECT_EQ(error.error_squares, kFloatInfinity);
      EXPECT_EQ(error.relative(), kFloatInfinity);
      EXPECT_EQ(error.worst_block, kFloatInfinity);
    }
  }
}

TEST_P(Quantize, ZeroAndTinyBlocksAreZeros) {
  for (const QuantFormat format : formats({64})) {
    for (const float value : {0.0f, -0.0f, 1e-45f, -1e-40f, 0x1p-126f, 0x1.fffffep-104f}) {
      const std::vector<float> in(100, value);
      std::vector<float> out(100, 5.0f);
      CodeArray code(100, format);
      QuantError error;
      quantize(code.at(), in.data(), Type::f32, 100, format, 0, 0, nullptr, nullptr, 0, &error);
      dequantize(out.data(), Type::f32, code.at(), 100, format);
      EXPECT_EQ(code.step(0), 0.0f);
      for (const float decoded : out) ASSERT_EQ(std::bit_cast<uint32_t>(decoded), 0u);
      EXPECT_EQ(error.relative(), 0.0);
    }
  }
}

// From the smallest value that is kept to the largest: never an infinity, never beyond the input.
TEST_P(Quantize, TheExtremesOfF32AreKept) {
  for (const QuantFormat format : formats({64})) {
    // The transform spreads a single value over 64 elements.
    const float least = format.hadamard ? kQuantTiny * 64 : kQuantTiny;
    for (const float value : {least, 1e-20f, std::numeric_limits<float>::max()}) {
      std::vector<float> in(64), out(64);
      in[3] = -value;
      CodeArray code(64, format);
      quantize(code.at(), in.data(), Type::f32, 64, format, 0, 0);
      dequantize(out.data(), Type::f32, code.at(), 64, format);
      if (format.stochastic) {
        EXPECT_LE(std::fabs(out[3]), value);
      } else {
        EXPECT_NEAR(out[3] / value, -1.0f, 1e-6f) << format;
        EXPECT_LE(std::fabs(out[3]), value) << format;
      }
    }
  }
}

// With beta 0 the full error is added again: the mean of the sent values converges to the value.
TEST_P(Quantize, FeedbackSendsLaterWhatWasLost) {
  constexpr size_t kN = 256;
  constexpr int kRounds = 64;
  const QuantFormat format{4, 256};
  Array in(Type::f32, kN), out(Type::f32, kN), residual(Type::f32, kN);
  fill(in, 8, false);
  std::vector<double> sent(kN);
  float largest_step = 0;
  for (int round = 0; round < kRounds; ++round) {
    CodeArray code(kN, format);
    quantize(code.at(), in.data(), Type::f32, kN, format, 0, 0, nullptr, residual.f32(), 0.0f);
    dequantize(out.data(), Type::f32, code.at(), kN, format);
    largest_step = std::max(largest_step, code.step(0));
    for (size_t i = 0; i < kN; ++i) sent[i] += static_cast<double>(out.get(i));
  }
  for (size_t i = 0; i < kN; ++i) {
    ASSERT_NEAR(sent[i] / kRounds, in.get(i), 0.51 * largest_step / kRounds) << i;
  }
}

TEST_P(Quantize, PaddingIsZero) {
  for (const uint32_t bits : {8u, 4u}) {
    for (const bool stochastic : {false, true}) {
      const QuantFormat format{bits, 256, stochastic};
      for (const size_t n : {1u, 33u, 100u, 255u}) {
        Array in(Type::f16, n);
        fill(in, 2, false);
        CodeArray code(n, format);
        quantize(code.at(), in.data(), Type::f16, n, format, 3, 0);
        for (size_t i = n; i < 256; ++i) ASSERT_EQ(code.q(i), 0) << n << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace meron::kernels
