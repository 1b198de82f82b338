// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace meron::kernels {
namespace {

// A 16-bit format as its standard describes it.
struct Format {
  int mantissa_bits;
  int min_exponent;  // of the smallest normal number
  double overflow;   // the least magnitude that rounds to infinity
  uint16_t infinity;
  uint16_t quiet_bit;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

const Format kBf16 = {7, -126, 0x1.ffp127, 0x7f80, 0x0040, f32_from_bf16, bf16_from_f32};
const Format kF16 = {10, -14, 65520.0, 0x7c00, 0x0200, f32_from_f16, f16_from_f32};

class Half : public testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(Formats, Half, testing::Values(kBf16, kF16),
                         [](const auto& info) { return info.index == 0 ? "Bf16" : "F16"; });

// Independent of the code under test: by scaling and the C library's rounding to even.
double nearest(const Format& format, double value) {
  if (std::fabs(value) >= format.overflow) return std::copysign(INFINITY, value);
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - 1, format.min_exponent) - format.mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

void expect_nearest(const Format& format, float value) {
  const float narrowed = format.widen(format.narrow(value));
  ASSERT_EQ(narrowed, nearest(format, value)) << std::hexfloat << value;
  ASSERT_EQ(std::signbit(narrowed), std::signbit(value)) << std::hexfloat << value;
}

TEST_P(Half, EveryPatternSurvivesWideningAndNarrowing) {
  const Format& format = GetParam();
  for (uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const float wide = format.widen(bits);
    const bool nan = (bits & 0x7fff) > format.infinity;
    ASSERT_EQ(std::isnan(wide), nan) << pattern;
    ASSERT_EQ(format.narrow(wide), nan ? bits | format.quiet_bit : bits) << pattern;
  }
}

TEST_P(Half, WideningYieldsTheValueOfThePattern) {
  const Format& format = GetParam();
  const int bits = format.mantissa_bits;
  for (uint16_t pattern = 0; pattern < format.infinity; ++pattern) {
    const int exponent = pattern >> bits;
    const int mantissa = pattern & ((1 << bits) - 1);
    const double value = std::ldexp(exponent == 0 ? mantissa : mantissa + (1 << bits),
                                    format.min_exponent - bits + std::max(exponent - 1, 0));
    ASSERT_EQ(format.widen(pattern), value) << pattern;
    ASSERT_EQ(format.widen(static_cast<uint16_t>(pattern | 0x8000)), -value) << pattern;
  }
}

TEST_P(Half, TiesGoToEvenAndTheirNeighboursToTheNearest) {
  const Format& format = GetParam();
  for (uint16_t pattern = 0; pattern < format.infinity; ++pattern) {
    const float low = format.widen(pattern);
    const float high = pattern + 1 == format.infinity
                           ? std::ldexp(1.0f, 1 - format.min_exponent)  // may be infinity
                           : format.widen(static_cast<uint16_t>(pattern + 1));
    const double middle = (static_cast<double>(low) + static_cast<double>(high)) / 2;
    const float tie =
        std::isinf(high) ? static_cast<float>(format.overflow) : static_cast<float>(middle);
    for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)}) {
      expect_nearest(format, value);
      expect_nearest(format, -value);
    }
  }
}

TEST_P(Half, ManyPatternsOfF32RoundToTheNearest) {
  const Format& format = GetParam();
  for (uint64_t pattern = 0; pattern <= 0xffffffffu; pattern += 4099) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(pattern));
    if (!std::isnan(value)) {
      expect_nearest(format, value);
    } else {
      ASSERT_TRUE(std::isnan(format.widen(format.narrow(value))));
    }
  }
}

TEST_P(Half, ANanWithALowPayloadStaysANan) {
  const Format& format = GetParam();
  const float nan = std::bit_cast<float>(0xff800001u);
  EXPECT_EQ(format.narrow(nan), 0x8000 | format.infinity | format.quiet_bit);
}

}  // namespace
}  // namespace meron::kernels
