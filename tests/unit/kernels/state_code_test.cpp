// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state_code.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace meron::kernels {
namespace {

constexpr StateKind kKinds[] = {StateKind::average, StateKind::square};
constexpr float kLargest = std::numeric_limits<float>::max();

std::vector<float> through_codes(StateKind kind, const std::vector<float>& values) {
  std::vector<uint8_t> codes(values.size(), 0xa5);
  std::vector<float> scales(scale_count(StateType::int8, values.size()), -1.0f);
  encode_states(StateType::int8, kind, codes.data(), scales.data(), values.data(), values.size());
  std::vector<float> result(values.size());
  decode_states(StateType::int8, kind, result.data(), codes.data(), scales.data(), values.size());
  return result;
}

TEST(StateCode, SizesCountPartialBlocks) {
  EXPECT_EQ(state_bytes(StateType::f32, 300), 1200u);
  EXPECT_EQ(state_bytes(StateType::bf16, 300), 600u);
  EXPECT_EQ(state_bytes(StateType::int8, 300), 300u);
  EXPECT_EQ(scale_count(StateType::int8, 0), 0u);
  EXPECT_EQ(scale_count(StateType::int8, 256), 1u);
  EXPECT_EQ(scale_count(StateType::int8, 257), 2u);
  EXPECT_EQ(scale_count(StateType::f32, 257), 0u);
}

TEST(StateCode, CodesGrowWithTheirNumbersAndReachTheLargest) {
  for (int code = 1; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code), before = static_cast<uint8_t>(code - 1);
    EXPECT_GT(Code<StateKind::square>::decode(byte, 1.0f),
              Code<StateKind::square>::decode(before, 1.0f));
    if (code < 128) {
      EXPECT_GT(Code<StateKind::average>::decode(byte, 1.0f),
                Code<StateKind::average>::decode(before, 1.0f));
      EXPECT_EQ(Code<StateKind::average>::decode(byte | 0x80, 1.0f),
                -Code<StateKind::average>::decode(byte, 1.0f));
    }
  }
  EXPECT_EQ(Code<StateKind::square>::decode(0, 1.0f), 0.0f);
  EXPECT_EQ(Code<StateKind::square>::decode(1, 1.0f), Code<StateKind::square>::kLeast);
  EXPECT_EQ(Code<StateKind::square>::decode(255, 1.0f), 7.5f);
  EXPECT_GE(Code<StateKind::average>::decode(127, 1.0f), 7.0f);
}

// Also at both ends of where rounding at random leaves the largest element: what a checkpoint has
// read gives the codes again.
TEST(StateCode, DecodedBlocksKeepTheirCodes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const StateKind kind : kKinds) {
    for (int round = 0; round < 500; ++round) {
      std::vector<uint8_t> codes(kBlock), again(kBlock);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
      // The largest, with c, is within [3.5, 7] times the scale.
      const float scale = std::ldexp(1.0f, static_cast<int>(random() % 120) - 60);
      const auto value = [&](uint8_t code) {
        return std::abs(kind == StateKind::average ? Code<StateKind::average>::decode(code, 1.0f)
                                                   : Code<StateKind::square>::decode(code, 1.0f));
      };
      for (uint8_t& code : codes) {
        while (value(code) > 7.0f) code = static_cast<uint8_t>(random());
      }
      while (value(codes[0]) < 3.5f || value(codes[0]) > 7.0f) {
        codes[0] = static_cast<uint8_t>(random());
      }
      std::vector<float> values(kBlock);
      decode_states(StateType::int8, kind, values.data(), codes.data(), &scale, kBlock);
      float scale_again = 0;
      encode_states(StateType::int8, kind, again.data(), &scale_again, values.data(), kBlock);
      ASSERT_EQ(scale_again, scale) << round;
      ASSERT_EQ(again, codes) << round;
    }
  }
}

// A number that a code stands for comes back whatever is added below the cut.
TEST(StateCode, WhatACodeStandsForStaysAsItIs) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    for (const uint32_t below : {0u, half_below_cut(kCodeCut), (1u << kCodeCut) - 1}) {
      for (const float scale : {1.0f, 0x1p-90f, 0x1p+100f}) {
        const float average = Code<StateKind::average>::decode(byte, scale);
        EXPECT_EQ(Code<StateKind::average>::encode(average, 1 / scale, below), byte);
        const float square = Code<StateKind::square>::decode(byte, scale);
        EXPECT_EQ(Code<StateKind::square>::encode(square, 1 / scale, below), byte);
      }
    }
  }
}

// Half a unit of three bits of mantissa, or of what is added to all, times the scale.
TEST(StateCode, ErrorsAreWithinHalfAUnit) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> mantissa(-1.0f, 1.0f);
  for (const StateKind kind : kKinds) {
    const float offset = kind == StateKind::average ? 0x1p-13f : 0x1p-29f;
    for (int octave = -120; octave <= 120; octave += 3) {
      std::uniform_int_distribution<int> below(-40, 0);
      std::vector<float> values(3 * kBlock - 100);
      for (float& value : values) {
        value = std::ldexp(mantissa(random), std::max(-125, octave + below(random)));
        if (kind == StateKind::square) value = std::fabs(value);
      }
      const std::vector<float> decoded = through_codes(kind, values);
      for (size_t begin = 0; begin < values.size(); begin += kBlock) {
        const size_t end = std::min(values.size(), begin + kBlock);
        float largest = 0;
        for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
        for (size_t i = begin; i < end; ++i) {
          const float floor = largest / 3.5f * offset;  // the offset, in the numbers' own size
          const float bound = std::max((std::fabs(values[i]) + floor) / 16, floor / 8) * 1.00001f;
          ASSERT_NEAR(decoded[i], values[i], bound) << "largest " << largest;
        }
      }
    }
  }
}

TEST(StateCode, TheScaleIsAPowerOfTwoThatFitsTheLargest) {
  for (const float largest : {0x1p-110f, 1e-20f, 1.0f, 1.7499999f, 1.75f, 1.99f, 3.0f, 1e30f}) {
    const CodeScale made(std::bit_cast<uint32_t>(largest));
    EXPECT_EQ(std::bit_cast<uint32_t>(made.scale) & 0x7fffffu, 0u);
    EXPECT_EQ(made.scale * made.inverse, 1.0f);
    EXPECT_GE(largest * made.inverse, 3.5f);
    EXPECT_LT(largest * made.inverse, 7.0f);
  }
}

TEST(StateCode, ZeroesAreZeroesAlsoInMemoryThatIs) {
  for (const StateKind kind : kKinds) {
    for (const float value : through_codes(kind, std::vector<float>(300, 0.0f))) {
      EXPECT_EQ(value, 0.0f);
    }
    std::vector<float> values(300, -1.0f);
    const std::vector<uint8_t> codes(300, 0);
    const float scales[2] = {};
    decode_states(StateType::int8, kind, values.data(), codes.data(), scales, 300);
    for (const float value : values) EXPECT_EQ(value, 0.0f);
  }
}

TEST(StateCode, TheSmallestAndTheLargestKeepTheirSize) {
  for (const StateKind kind : kKinds) {
    for (const float value : {1e-38f, 0x1p-126f, 0x1.7p127f}) {
      const std::vector<float> decoded = through_codes(kind, {value, 0.0f, value / 2});
      EXPECT_NEAR(decoded[0] / value, 1.0f, 0.07f) << value;
      EXPECT_EQ(decoded[1], 0.0f);
      EXPECT_NEAR(decoded[2] / value, 0.5f, 0.07f) << value;
    }
  }
  // Subnormal numbers lose precision; the largest may become an infinity, but not less.
  EXPECT_NEAR(through_codes(StateKind::square, {1e-42f})[0], 1e-42f, 1e-39f);
  EXPECT_GE(through_codes(StateKind::average, {kLargest})[0], 0x1.cp127f);
}

// A step divides by the root of a square.
TEST(StateCode, PositiveSquaresNeverBecomeZero) {
  for (const float small : {1e-45f, 1e-30f, 1e-12f}) {
    for (const float large : {1e-20f, 1.0f, kLargest}) {
      EXPECT_GT(through_codes(StateKind::square, {large, small})[1], 0.0f);
      const CodeScale made(std::bit_cast<uint32_t>(large));
      EXPECT_GE(Code<StateKind::square>::encode(small, made.inverse, 0), 1);
    }
  }
  EXPECT_EQ(through_codes(StateKind::square, {1.0f, -1.0f, -0.0f})[1], 0.0f);
}

TEST(StateCode, BlocksWithoutNumbersReadAsNaN) {
  for (const StateKind kind : kKinds) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> values(3 * kBlock, 1.0f);
      values[kBlock + 7] = bad;
      const std::vector<float> decoded = through_codes(kind, values);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(std::isnan(decoded[i]), i / kBlock == 1) << i;
      }
    }
  }
}

TEST(StateCode, Bf16KeepsWhatIsNotFinite) {
  for (const uint32_t below : {0u, 0x8000u, 0xffffu}) {
    EXPECT_EQ(f32_from_bf16(bf16_at_random(INFINITY, below)), INFINITY);
    EXPECT_EQ(f32_from_bf16(bf16_at_random(-INFINITY, below)), -INFINITY);
    EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_at_random(NAN, below))));
    EXPECT_TRUE(
        std::isnan(f32_from_bf16(bf16_at_random(std::bit_cast<float>(0xffffffffu), below))));
    EXPECT_EQ(bf16_at_random(1.5f, below), bf16_from_f32(1.5f));
    EXPECT_EQ(bf16_at_random(0.0f, below), 0);
  }
}

TEST(StateCode, OtherTypesConvertToNearest) {
  const std::vector<float> values = {1.0f, 0.1f, -3.7f, 1e-40f, INFINITY};
  std::vector<uint16_t> bf16(values.size());
  std::vector<float> read(values.size());
  encode_states(StateType::bf16, StateKind::average, bf16.data(), nullptr, values.data(), 5);
  decode_states(StateType::bf16, StateKind::average, read.data(), bf16.data(), nullptr, 5);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(read[i], f32_from_bf16(bf16_from_f32(values[i])));
  std::vector<float> f32(values.size());
  encode_states(StateType::f32, StateKind::square, f32.data(), nullptr, values.data(), 5);
  decode_states(StateType::f32, StateKind::square, read.data(), f32.data(), nullptr, 5);
  EXPECT_EQ(read, values);
}

}  // namespace
}  // namespace meron::kernels
