// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/layout.h"
#include "place/place.h"

namespace meron {
namespace {

constexpr uint64_t kCount = 100 * kBlock + 17;
constexpr uint32_t kSeed = 20261126;

std::vector<float> numbers(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(kCount);
  for (float& each : out) each = normal(random);
  return out;
}

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = std::bit_cast<uint32_t>(values[i]);
  return out;
}

class PlaceOnHostTest : public ::testing::TestWithParam<int> {
 protected:
  ThreadPool threads{GetParam()};
  PlaceOnHost place{threads};
};

TEST_P(PlaceOnHostTest, SumsGoInOrderWhicheverEndTheyBeginAt) {
  const std::vector<float> a = numbers(kSeed), b = numbers(kSeed + 1), start = numbers(kSeed + 2);
  std::vector<float> expected(kCount);
  for (uint64_t i = 0; i < kCount; ++i) expected[i] = ((start[i] + a[i]) + b[i]) * 0.5f;
  double total = 0;
  for (const bool backwards : {false, true}) {
    std::vector<float> out = start;
    Squares squares;
    Sum sum;
    sum.out = out.data();
    sum.accumulate = true;
    sum.in = {a.data(), b.data()};
    sum.scale = 0.5f;
    sum.count = kCount;
    sum.squares = &squares;
    sum.backwards = backwards;
    ASSERT_TRUE(place.sum(sum).ok());
    EXPECT_EQ(bits(expected), bits(out));
    if (backwards) {
      EXPECT_EQ(total, squares.here.value());
    }
    total = squares.here.value();
  }
  EXPECT_GT(total, 0);
}

TEST_P(PlaceOnHostTest, SquaresAreAddedToWhatIsThere) {
  std::vector<float> values = numbers(kSeed);
  Squares once, twice;
  for (Squares* const squares : {&once, &twice, &twice}) {
    Sum sum;
    sum.out = values.data();
    sum.accumulate = true;
    sum.count = kCount;
    sum.squares = squares;
    ASSERT_TRUE(place.sum(sum).ok());
  }
  EXPECT_EQ(2 * once.here.value(), twice.here.value());
}

TEST_P(PlaceOnHostTest, ASumOfEncodedArraysIsTheSumOfWhatTheyDecodeTo) {
  const Codec codec{.kind = CodecKind::int8};
  std::vector<std::vector<std::byte>> encoded;
  std::vector<std::vector<float>> decoded;
  for (uint32_t i = 0; i < 3; ++i) {
    const std::vector<float> values = numbers(kSeed + i);
    std::vector<std::byte>& to = encoded.emplace_back(wire_bytes(codec, kCount, sizeof(float)));
    const meron_encode_task encode{to.data(), values.data(), nullptr, kCount, 7};
    kernels::QuantError error;
    ASSERT_TRUE(place.encode(codec, {&encode, 1}, &error).ok());
    EXPECT_GT(error.relative(), 0);
    EXPECT_LT(error.relative(), 0.02);
    const meron_cast_task decode{decoded.emplace_back(kCount).data(), to.data(), kCount};
    ASSERT_TRUE(place.decode(codec, {&decode, 1}).ok());
  }
  std::vector<float> of_encoded(kCount), of_decoded(kCount);
  Sum sum;
  sum.count = kCount;
  sum.out = of_encoded.data();
  for (const auto& each : encoded) sum.in.push_back(each.data());
  ASSERT_TRUE(place.sum_encoded(codec, sum).ok());
  sum.out = of_decoded.data();
  sum.in.clear();
  for (const auto& each : decoded) sum.in.push_back(each.data());
  ASSERT_TRUE(place.sum(sum).ok());
  EXPECT_EQ(bits(of_decoded), bits(of_encoded));
}

TEST_P(PlaceOnHostTest, ResidualsKeepWhatEncodingLostWhereTheCodecHasFeedback) {
  const std::vector<float> values = numbers(kSeed);
  for (const bool feedback : {false, true}) {
    Codec codec{.kind = CodecKind::int8};
    codec.feedback = feedback;
    std::vector<std::byte> encoded(wire_bytes(codec, kCount, sizeof(float)));
    std::vector<float> residual(kCount, 0.0f);
    const meron_encode_task task{encoded.data(), values.data(), residual.data(), kCount, 7};
    ASSERT_TRUE(place.encode(codec, {&task, 1}, nullptr).ok());
    double kept = 0;
    for (const float each : residual) kept += std::abs(static_cast<double>(each));
    EXPECT_EQ(feedback, kept > 0);
  }
}

TEST_P(PlaceOnHostTest, NothingIsDoneWithNothing) {
  EXPECT_TRUE(place.sum(Sum{}).ok());
  EXPECT_TRUE(place.sum_encoded({.kind = CodecKind::int8}, Sum{}).ok());
  EXPECT_TRUE(place.copy(nullptr, nullptr, 0).ok());
}

INSTANTIATE_TEST_SUITE_P(Threads, PlaceOnHostTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace meron
