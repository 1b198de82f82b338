// SPDX-License-Identifier: Apache-2.0
#include "plan/unit_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "expect_error.h"

namespace meron {
namespace {

using Shape = std::vector<uint64_t>;

TEST(ElementCount, Products) {
  EXPECT_EQ(*element_count(Shape{}), 1u);
  EXPECT_EQ(*element_count(Shape{7}), 7u);
  EXPECT_EQ(*element_count(Shape{3, 5, 7}), 105u);
  EXPECT_EQ(*element_count(Shape{3, 0, 7}), 0u);
  EXPECT_EQ(*element_count(Shape(16, 1)), 1u);
  EXPECT_EQ(*element_count(Shape{kMaxElements}), kMaxElements);
}

TEST(ElementCount, Limits) {
  expect_error(element_count(Shape(17, 1)), MERON_E_ARGUMENT,
               "17 dimensions, more than the limit of 16");
  expect_error(element_count(Shape{kMaxElements + 1}), MERON_E_ARGUMENT,
               "more than 281474976710656");
  expect_error(element_count(Shape{1ull << 32, 1ull << 32}), MERON_E_ARGUMENT, "elements");
  expect_error(element_count(Shape{1ull << 63, 2}), MERON_E_ARGUMENT, "elements");
  expect_error(element_count(Shape{UINT64_MAX, UINT64_MAX}), MERON_E_ARGUMENT, "elements");
  // An empty tensor's strides must be sound as well.
  expect_error(element_count(Shape{1ull << 40, 0, 1ull << 40}), MERON_E_ARGUMENT, "elements");
}

TEST(CheckName, LengthAndText) {
  EXPECT_TRUE(check_name("model.layers.0.w").ok());
  EXPECT_TRUE(check_name(std::string(kMaxNameBytes, 'x')).ok());
  EXPECT_TRUE(check_name("naïve 名").ok());
  expect_error(check_name(""), MERON_E_ARGUMENT, "empty");
  expect_error(check_name(std::string(kMaxNameBytes + 1, 'x')), MERON_E_ARGUMENT, "513 bytes");
  expect_error(check_name("a\tb"), MERON_E_ARGUMENT, "control character");
  expect_error(check_name(std::string_view("a\0b", 3)), MERON_E_ARGUMENT, "control character");
  expect_error(check_name("a\xE2\x82"), MERON_E_ARGUMENT, "UTF-8");
}

TEST(LayoutUnit, PlacesByHand) {
  const std::vector<TensorDesc> tensors = {
      {"weight", {10, 10}, DType::bf16, true},  // 100 elements: room for 128
      {"norm", {5}, DType::f32, true},          // another dtype: another flat
      {"bias", {33}, DType::bf16, true},        // behind weight: 64
      {"table", {4, 8}, DType::bf16, false},    // frozen: a third flat, no padding needed
      {"empty", {0, 9}, DType::bf16, true},     // takes no room
      {"scale", {}, DType::bf16, true},         // 0-dim: one element, room for 32
  };
  const Result<UnitLayout> layout = layout_unit(tensors);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->flats,
            (std::vector<FlatDesc>{
                {DType::bf16, 224, true}, {DType::f32, 32, true}, {DType::bf16, 32, false}}));
  EXPECT_EQ(layout->tensors,
            (std::vector<TensorPlace>{
                {0, 0, 100}, {1, 0, 5}, {0, 128, 33}, {2, 0, 32}, {0, 192, 0}, {0, 192, 1}}));
}

TEST(LayoutUnit, EmptyUnitsAndFlats) {
  EXPECT_EQ(*layout_unit({}), UnitLayout{});
  const std::vector<TensorDesc> nothing = {{"a", {0}, DType::f16, true}};
  EXPECT_EQ(layout_unit(nothing)->flats, (std::vector<FlatDesc>{{DType::f16, 0, true}}));
}

TEST(LayoutUnit, ErrorsNameTheTensor) {
  const auto error_of = [](std::vector<TensorDesc> tensors) {
    const Result<UnitLayout> layout = layout_unit(tensors);
    EXPECT_FALSE(layout.ok());
    return layout.error().info();
  };
  EXPECT_EQ(error_of({{"a", {1}}, {"b", {1}}, {"a", {2}}}).code, MERON_E_DUPLICATE);
  EXPECT_EQ(error_of({{"a", {1}}, {"b", {1}}, {"a", {2}}}).subject, "a");
  EXPECT_EQ(error_of({{"ok", {1}}, {"huge", {1ull << 40, 1ull << 40}}}).subject, "huge");
  EXPECT_EQ(error_of({{"", {1}}}).code, MERON_E_ARGUMENT);
  // Each fits, their sum does not.
  const ErrorInfo info = error_of({{"first", {kMaxElements}}, {"second", {1}}});
  EXPECT_EQ(info.subject, "second");
  EXPECT_THAT(info.what, testing::HasSubstr("the unit has more than"));
}

TEST(LayoutUnit, TensorsAreAlignedDisjointAndFillTheirFlat) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<TensorDesc> tensors;
    const size_t count = random() % 20;
    for (size_t i = 0; i < count; ++i) {
      TensorDesc tensor{
          fmt::format("t{}", i), {}, static_cast<DType>(random() % 3), random() % 2 == 0};
      for (size_t dims = random() % 4; dims > 0; --dims) tensor.shape.push_back(random() % 9);
      tensors.push_back(std::move(tensor));
    }
    const Result<UnitLayout> layout = layout_unit(tensors);
    ASSERT_TRUE(layout.ok());
    ASSERT_EQ(layout->tensors.size(), count);
    std::vector<uint64_t> filled(layout->flats.size());
    for (size_t i = 0; i < count; ++i) {
      const TensorPlace& place = layout->tensors[i];
      ASSERT_LT(place.flat, layout->flats.size());
      const FlatDesc& flat = layout->flats[place.flat];
      EXPECT_EQ(flat.dtype, tensors[i].dtype);
      EXPECT_EQ(flat.trainable, tensors[i].trainable);
      EXPECT_EQ(place.elements, *element_count(tensors[i].shape));
      EXPECT_EQ(place.offset % kTensorAlign, 0u);
      EXPECT_EQ(place.offset, filled[place.flat]);  // in order, without holes but for the padding
      filled[place.flat] += round_up(place.elements, kTensorAlign);
    }
    std::map<std::pair<DType, bool>, int> kinds;
    for (size_t f = 0; f < layout->flats.size(); ++f) {
      EXPECT_EQ(layout->flats[f].elements, filled[f]);
      EXPECT_EQ(++kinds[std::pair(layout->flats[f].dtype, layout->flats[f].trainable)], 1);
    }
  }
}

}  // namespace
}  // namespace meron
