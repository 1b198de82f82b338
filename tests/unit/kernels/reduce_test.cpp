// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/reduce.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "array.h"
#include "kernels/cpu/copy.h"
#include "targets.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(Reduce);

// The inputs of one call.
struct Inputs {
  Inputs(Type type, size_t count, size_t n, size_t offset, bool special) : type(type) {
    for (size_t k = 0; k < count; ++k) {
      arrays.emplace_back(type, n, (offset + k) % 7);
      fill(arrays.back(), static_cast<uint32_t>(31 * n + k), special);
    }
  }
  std::vector<const void*> pointers(size_t begin = 0) const {
    std::vector<const void*> result;
    for (const Array& array : arrays) result.push_back(array.at(begin));
    return result;
  }
  Type type;
  std::vector<Array> arrays;
};

bool same_sum(const ExactSum& a, const ExactSum& b) {
  return std::bit_cast<uint64_t>(a.value()) == std::bit_cast<uint64_t>(b.value()) ||
         (std::isnan(a.value()) && std::isnan(b.value()));
}

void expect_reference(Type type, size_t count, size_t n, size_t offset, bool accumulate,
                      float scale, bool special) {
  SCOPED_TRACE(testing::Message() << count << " of " << name_of(type) << ", " << n
                                  << " elements at " << offset << ", accumulate " << accumulate
                                  << ", scale " << scale);
  const Inputs inputs(type, count, n, offset, special);
  Array actual(Type::f32, n, offset);
  fill(actual, 77, special);
  Array expected(actual), unmeasured(actual);
  ExactSum squares, expected_squares;
  reduce(actual.f32(), accumulate, inputs.pointers().data(), count, type, scale, n, &squares);
  reduce_reference(expected.f32(), accumulate, inputs.pointers().data(), count, type, scale, n,
                   &expected_squares);
  ASSERT_TRUE(same(actual, expected));
  ASSERT_TRUE(same_sum(squares, expected_squares)) << squares.value();
  reduce(unmeasured.f32(), accumulate, inputs.pointers().data(), count, type, scale, n, nullptr,
         true);
  ASSERT_TRUE(same(unmeasured, expected));
}

TEST_P(Reduce, EveryTypeCountSizeAndOffsetEqualsTheReference) {
  for (const Type type : kTypes) {
    for (const size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 8u, 9u}) {
      for (const size_t n : {0u, 1u, 15u, 17u, 63u, 255u, 256u, 257u, 511u, 768u, 1025u}) {
        for (const bool accumulate : {false, true}) {
          for (const bool special : {false, true}) {
            expect_reference(type, count, n, n % 3, accumulate, special ? 1.0f : 0.3f, special);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Large outputs take another way to memory: aligned and not, accumulating and not.
TEST_P(Reduce, LargeOutputsEqualTheReference) {
  const size_t n = kStreamBytes / sizeof(float) + 300;
  for (const Type type : {Type::f32, Type::bf16}) {
    for (const size_t offset : {0u, 1u}) {
      for (const bool accumulate : {false, true}) {
        expect_reference(type, 2, n, offset, accumulate, 0.5f, true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Reduce, AnF32InputMayBeTheOutput) {
  for (const size_t n : {size_t{777}, kStreamBytes / sizeof(float) + 256}) {
    for (size_t own = 0; own < 3; ++own) {
      const Inputs inputs(Type::f32, 3, n, 0, false);
      Array expected(Type::f32, n);
      ExactSum expected_squares;
      reduce_reference(expected.f32(), false, inputs.pointers().data(), 3, Type::f32, 0.25f, n,
                       &expected_squares);
      for (const bool handed_over : {false, true}) {
        ExactSum squares;
        Array in_place(inputs.arrays[own]);
        std::vector<const void*> pointers = inputs.pointers();
        pointers[own] = in_place.data();
        reduce(in_place.f32(), false, pointers.data(), 3, Type::f32, 0.25f, n, &squares,
               handed_over);
        ASSERT_TRUE(same(in_place, expected));
        ASSERT_TRUE(same_sum(squares, expected_squares));
      }
    }
  }
}

// 1e8 + 1 loses the 1 in f32, so each order has its own result.
TEST_P(Reduce, AddsFromTheFirstInputToTheLast) {
  constexpr size_t kN = 300;
  const float big = 1e8f;
  const std::vector<float> plus(kN, big), one(kN, 1.0f), minus(kN, -big);
  std::vector<float> out(kN);
  const auto sum = [&](std::vector<const void*> in, bool accumulate) {
    reduce(out.data(), accumulate, in.data(), in.size(), Type::f32, 1.0f, kN, nullptr);
    for (const float value : out) EXPECT_EQ(value, out[0]);
    return out[0];
  };
  EXPECT_EQ(sum({plus.data(), one.data(), minus.data()}, false), 0.0f);
  EXPECT_EQ(sum({plus.data(), minus.data(), one.data()}, false), 1.0f);
  EXPECT_EQ(sum({one.data(), plus.data(), minus.data()}, false), 0.0f);
  out = plus;  // what was there comes first
  EXPECT_EQ(sum({one.data(), minus.data()}, true), 0.0f);
  out = plus;
  EXPECT_EQ(sum({minus.data(), one.data()}, true), 1.0f);
}

// The sum is scaled, not its terms: 3e38 + 3e38 overflows although half of it would not.
TEST_P(Reduce, ScalesAfterAdding) {
  const std::vector<float> huge(40, 3e38f);
  std::vector<float> out(40);
  const void* in[] = {huge.data(), huge.data()};
  reduce(out.data(), false, in, 2, Type::f32, 0.5f, 40, nullptr);
  for (const float value : out) ASSERT_TRUE(std::isinf(value));
}

TEST_P(Reduce, OneInputKeepsNegativeZeroAndNoneYieldsZero) {
  const std::vector<float> zeros(300, -0.0f);
  std::vector<float> out(300, 5.0f);
  const void* in[] = {zeros.data()};
  reduce(out.data(), false, in, 1, Type::f32, 1.0f, 300, nullptr);
  for (const float value : out) ASSERT_TRUE(value == 0.0f && std::signbit(value));
  reduce(out.data(), false, nullptr, 0, Type::f32, 1.0f, 300, nullptr);
  for (const float value : out) ASSERT_TRUE(value == 0.0f && !std::signbit(value));
}

TEST_P(Reduce, SquaresDoNotDependOnHowTheRangeIsCut) {
  constexpr size_t kN = 20 * kBlock + 100;
  const Inputs inputs(Type::f32, 2, kN, 0, false);
  std::vector<float> out(kN);
  ExactSum whole;
  reduce(out.data(), false, inputs.pointers().data(), 2, Type::f32, 0.5f, kN, &whole);
  for (const size_t blocks : {1u, 2u, 3u, 7u}) {
    ExactSum total;
    std::vector<ExactSum> parts;
    for (size_t begin = 0; begin < kN; begin += blocks * kBlock) {
      const size_t n = std::min(kN - begin, blocks * kBlock);
      parts.emplace_back();
      reduce(out.data() + begin, false, inputs.pointers(begin).data(), 2, Type::f32, 0.5f, n,
             &parts.back());
    }
    for (size_t k = parts.size(); k-- > 0;) total.merge(parts[k]);
    EXPECT_EQ(std::bit_cast<uint64_t>(total.value()), std::bit_cast<uint64_t>(whole.value()));
  }
}

TEST_P(Reduce, SquaresAreThoseOfTheResult) {
  const std::vector<float> a(1000, 3.0f), b(1000, 1.0f);
  std::vector<float> out(1000);
  const void* in[] = {a.data(), b.data()};
  ExactSum squares;
  squares.add(7.0);  // what was there stays
  reduce(out.data(), false, in, 2, Type::f32, 0.5f, 1000, &squares);
  EXPECT_EQ(squares.value(), 4007.0);
}

TEST_P(Reduce, ASingleNonfiniteElementShowsInTheSquares) {
  for (const size_t at : {0u, 255u, 256u, 998u}) {
    std::vector<float> values(999, 1.0f), out(999);
    const void* in[] = {values.data()};
    ExactSum nan, infinity;
    values[at] = std::nanf("");
    reduce(out.data(), false, in, 1, Type::f32, 1.0f, 999, &nan);
    EXPECT_TRUE(std::isnan(nan.value()));
    values[at] = -INFINITY;
    reduce(out.data(), false, in, 1, Type::f32, 1.0f, 999, &infinity);
    EXPECT_EQ(infinity.value(), INFINITY);
  }
}

// Squares of the largest values are beyond f32, and far below what a double holds.
TEST_P(Reduce, SquaresOfLargeValuesDoNotOverflow) {
  const std::vector<float> values(512, 3e38f);
  std::vector<float> out(512);
  const void* in[] = {values.data()};
  ExactSum squares;
  reduce(out.data(), false, in, 1, Type::f32, 1.0f, 512, &squares);
  const double square = static_cast<double>(3e38f) * static_cast<double>(3e38f);
  EXPECT_NEAR(squares.value() / (512 * square), 1.0, 1e-15);
}

}  // namespace
}  // namespace meron::kernels
