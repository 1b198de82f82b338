// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state_code.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/update_reference.h"

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

// The formats that blocks can have.
std::vector<AverageCode> average_codes() {
  std::vector<AverageCode> codes;
  for (uint32_t format = 0; format < AverageCode::kFormats; ++format) {
    codes.emplace_back(BlockRange{std::bit_cast<uint32_t>(5.0f), 0}, format);
  }
  return codes;
}
std::vector<SquareCode> square_codes() {
  std::vector<SquareCode> codes;
  for (const float least : {1.0f, 0.9f, 0.1f, 1e-3f, 1e-5f, 1e-20f}) {
    codes.emplace_back(
        BlockRange{std::bit_cast<uint32_t>(1.0f), std::bit_cast<uint32_t>(least) - 1});
  }
  return codes;
}

TEST(StateCode, CodesGrowWithTheirNumbersAndReachTheLargest) {
  for (const SquareCode& code : square_codes()) {
    for (int c = 1; c < 256; ++c) {
      EXPECT_GT(code.decode(static_cast<uint8_t>(c)), code.decode(static_cast<uint8_t>(c - 1)));
    }
    EXPECT_EQ(code.decode(0), 0.0f);
    EXPECT_GE(code.decode(255), 1.0f);
  }
  for (const AverageCode& code : average_codes()) {
    for (int c = 1; c < 128; ++c) {
      const float value = code.decode(static_cast<uint8_t>(c));
      EXPECT_GT(value, code.decode(static_cast<uint8_t>(c - 1)));
      EXPECT_EQ(code.decode(static_cast<uint8_t>(c | 0x80)), -value);
    }
    EXPECT_EQ(code.decode(0), 0.0f);
    EXPECT_GE(code.decode(127), 7.0f * code.scale);
  }
}

// What a checkpoint has read keeps its bits, wherever rounding at random has left the elements.
TEST(StateCode, BlocksThatWereStoredKeepTheirBits) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 2000; ++round) {
    const float decades = static_cast<float>(random() % 40) / 4.0f;
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 120) - 60);
    std::vector<float> averages(kBlock), squares(kBlock);
    for (size_t i = 0; i < kBlock; ++i) {
      const float own = size * std::pow(10.0f, -decades * static_cast<float>(i) / kBlock);
      averages[i] = own * normal(random);
      squares[i] = random() % 50 == 0 ? 0.0f : own * (1.0f + 0.1f * std::fabs(normal(random)));
    }
    uint8_t codes[2][kBlock];
    float words[2];
    const float* const from[2] = {averages.data(), squares.data()};
    UpdateStep step;
    step.seed = random();
    store_states_reference(
        step,
        {.type = StateType::int8, .data = {codes[0], codes[1]}, .scales = {&words[0], &words[1]}},
        from, kBlock, 0);
    for (size_t k = 0; k < 2; ++k) {
      std::vector<float> values(kBlock);
      decode_states(StateType::int8, kKinds[k], values.data(), codes[k], &words[k], kBlock);
      ASSERT_EQ(through_codes(kKinds[k], values), values) << "state " << k << ", round " << round;
    }
  }
}

// A number that a code stands for comes back whatever is added below the cut.
TEST(StateCode, WhatACodeStandsForStaysAsItIs) {
  const auto check = [](const auto& code, uint32_t cut) {
    for (int c = 0; c < 256; ++c) {
      const auto byte = static_cast<uint8_t>(c);
      for (const uint32_t below : {0u, half_below_cut(cut), (1u << cut) - 1}) {
        EXPECT_EQ(code.encode(code.decode(byte), below), byte);
      }
    }
  };
  for (const AverageCode& code : average_codes()) check(code, code.cut);
  for (const SquareCode& code : square_codes()) check(code, code.shift);
}

// A word is all that is stored of a format.
TEST(StateCode, AWordHasTheFormat) {
  for (const AverageCode& code : average_codes()) {
    const AverageCode again(code.word());
    for (int c = 0; c < 256; ++c) {
      EXPECT_EQ(again.decode(static_cast<uint8_t>(c)), code.decode(static_cast<uint8_t>(c)));
    }
  }
  for (const SquareCode& code : square_codes()) {
    EXPECT_EQ(SquareCode(code.word()).base, code.base);
    EXPECT_EQ(SquareCode(code.word()).shift, code.shift);
  }
}

// Half a unit of the mantissa that is kept, or of what is added to all, times the scale.
TEST(StateCode, ErrorsOfAveragesAreWithinHalfAUnit) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> mantissa(-1.0f, 1.0f);
  for (uint32_t format = 0; format < AverageCode::kFormats; ++format) {
    for (int octave = -120; octave <= 120; octave += 3) {
      std::vector<float> values(kBlock);
      BlockRange range;
      for (float& value : values) {
        value =
            std::ldexp(mantissa(random), std::max(-125, octave - static_cast<int>(random() % 20)));
        range.include(value);
      }
      const AverageCode code(range, format);
      EXPECT_EQ(code.scale * code.inverse, 1.0f);
      const float largest = std::bit_cast<float>(range.largest);
      EXPECT_TRUE(octave < -110 ||
                  (largest * code.inverse >= 3.5f && largest * code.inverse < 7.0f));
      for (const float value : values) {
        const float decoded = code.decode(code.encode(value, half_below_cut(code.cut)));
        const float unit =
            (std::fabs(value) + code.offset * code.scale) / static_cast<float>(8 << format);
        ASSERT_NEAR(decoded, value, unit / 2 * 1.00001f) << "format " << format;
      }
    }
  }
}

TEST(StateCode, SquaresOfEqualSizeGetMoreBits) {
  const auto error = [](float least) {
    std::vector<float> values(kBlock);
    for (size_t i = 0; i < kBlock; ++i) {
      values[i] = std::pow(least, static_cast<float>(i) / (kBlock - 1));
    }
    const std::vector<float> decoded = through_codes(StateKind::square, values);
    float largest = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      largest = std::max(largest, std::fabs(decoded[i] / values[i] - 1));
    }
    return largest;
  };
  EXPECT_EQ(error(1.0f), 0.0f);
  EXPECT_LT(error(0.8f), 0.002f);
  EXPECT_LT(error(0.1f), 0.016f);
  EXPECT_LT(error(1e-9f), 0.0626f);
}

// Rounding at random has the right mean, so that a small decay of many steps is kept.
TEST(StateCode, RoundingAtRandomKeepsTheMean) {
  std::mt19937 random(2);
  const auto check = [&](const auto& code, uint32_t cut, float value, size_t which) {
    double sum = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      sum +=
          code.decode(code.encode(value, below_cut(static_cast<uint32_t>(random()), which, cut)));
    }
    EXPECT_NEAR(sum / kDraws / value, 1.0, 2e-3) << value;
  };
  for (const SquareCode& code : square_codes()) {
    check(code, code.shift, code.decode(100) * 1.0001f, 1);
  }
  for (const AverageCode& code : average_codes()) check(code, code.cut, 2.93f, 0);
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
  EXPECT_NEAR(through_codes(StateKind::square, {1e-42f})[0], 1e-42f, 1e-39f);
  EXPECT_GE(through_codes(StateKind::average, {kLargest})[0], 0x1.cp127f);
}

// Nothing that a step lets through becomes infinite as it is stored.
TEST(StateCode, NothingUpToTheLargestBecomesInfinite) {
  const float largest = std::bit_cast<float>(largest_state_bits(StateType::int8));
  for (const float least : {largest, 1.0f, 1e-30f}) {
    BlockRange range;
    range.include(largest);
    range.include(least);
    const SquareCode squares(range);
    EXPECT_TRUE(std::isfinite(squares.decode(squares.encode(largest, (1u << squares.shift) - 1))));
    for (uint32_t format = 0; format < AverageCode::kFormats; ++format) {
      const AverageCode code(range, format);
      EXPECT_TRUE(std::isfinite(code.decode(code.encode(largest, (1u << code.cut) - 1))));
    }
  }
  const float bf16 = std::bit_cast<float>(largest_state_bits(StateType::bf16));
  EXPECT_TRUE(std::isfinite(f32_from_bf16(bf16_at_random(bf16, 0xffff))));
}

// A step divides by the root of a square.
TEST(StateCode, PositiveSquaresNeverBecomeZero) {
  for (const float small : {1e-45f, 1e-30f, 1e-12f}) {
    for (const float large : {1e-45f, 1e-40f, 1e-20f, 1.0f, kLargest}) {
      if (small > large) continue;
      EXPECT_GT(through_codes(StateKind::square, {large, small})[1], 0.0f);
      BlockRange range;
      range.include(large);
      range.include(small);
      EXPECT_GE(SquareCode(range).encode(small, 0), 1);
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
