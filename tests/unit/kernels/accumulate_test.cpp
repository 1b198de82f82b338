// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/accumulate.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "array.h"
#include "kernels/cpu/half.h"
#include "targets.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(Convert);
MERON_EACH_TARGET(Accumulate);

const size_t kSizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 255, 257, 511, 1025};

TEST_P(Convert, EveryPatternOf16BitsWidensAsDefined) {
  for (const Type type : {Type::bf16, Type::f16}) {
    Array patterns(type, 65536);
    for (uint32_t i = 0; i < 65536; ++i) patterns.u16()[i] = static_cast<uint16_t>(i);
    Array wide(Type::f32, 65536);
    convert(wide.data(), Type::f32, patterns.data(), type, 65536);
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const float expected = type == Type::bf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
      ASSERT_EQ(std::bit_cast<uint32_t>(wide.f32()[i]), std::bit_cast<uint32_t>(expected))
          << name_of(type) << ' ' << i;
    }
  }
}

// Narrows f32 patterns in batches; every bit is compared, of NaNs too.
void expect_narrowed_as_defined(Type type, const std::vector<uint32_t>& patterns) {
  std::vector<uint16_t> narrow(patterns.size());
  convert(narrow.data(), type, patterns.data(), Type::f32, patterns.size());
  for (size_t i = 0; i < patterns.size(); ++i) {
    const float value = std::bit_cast<float>(patterns[i]);
    const uint16_t expected = type == Type::bf16 ? bf16_from_f32(value) : f16_from_f32(value);
    ASSERT_EQ(narrow[i], expected) << name_of(type) << std::hex << " of 0x" << patterns[i];
  }
}

TEST_P(Convert, F32NarrowsAsDefined) {
  for (const Type type : {Type::bf16, Type::f16}) {
    std::vector<uint32_t> patterns;
    for (uint64_t pattern = 0; pattern <= 0xffffffffu; pattern += 2053) {
      patterns.push_back(static_cast<uint32_t>(pattern));
    }
    expect_narrowed_as_defined(type, patterns);
  }
}

// Where rounding decides: each 16-bit value, the middle to the next, and one step to either side.
TEST_P(Convert, TiesAndTheirNeighboursNarrowAsDefined) {
  for (const Type type : {Type::bf16, Type::f16}) {
    std::vector<uint32_t> patterns;
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const uint32_t wide =
          std::bit_cast<uint32_t>(type == Type::bf16 ? f32_from_bf16(bits) : f32_from_f16(bits));
      const uint32_t half = type == Type::bf16 ? 0x8000 : 0x1000;
      for (const uint32_t base : {wide, wide + half, wide + half / 2}) {
        for (const uint32_t step : {0u, 1u, ~0u}) patterns.push_back(base + step);
      }
    }
    expect_narrowed_as_defined(type, patterns);
  }
}

TEST_P(Convert, EveryPairSizeAndOffsetEqualsTheReference) {
  for (const Type to : kTypes) {
    for (const Type from : kTypes) {
      for (const size_t n : kSizes) {
        for (const size_t offset : {0u, 1u, 3u}) {
          SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << ", " << n
                                          << " elements at " << offset);
          Array source(from, n, offset);
          fill(source, static_cast<uint32_t>(n), true);
          Array actual(to, n, 5 - offset), expected(actual);
          convert(actual.data(), to, source.data(), from, n);
          convert_reference(expected.data(), to, source.data(), from, n);
          ASSERT_EQ(std::memcmp(actual.data(), expected.data(), actual.size_bytes()), 0);
          ASSERT_TRUE(same(actual, expected));
        }
      }
    }
  }
}

TEST_P(Convert, WorksInPlaceBetweenTypesOfOneSize) {
  Array array(Type::bf16, 1001), expected(Type::f16, 1001);
  fill(array, 3, true);
  convert_reference(expected.data(), Type::f16, array.data(), Type::bf16, 1001);
  convert(array.data(), Type::f16, array.data(), Type::bf16, 1001);
  EXPECT_EQ(std::memcmp(array.data(), expected.data(), array.size_bytes()), 0);
}

TEST_P(Accumulate, EveryPairSizeAndOffsetEqualsTheReference) {
  for (const Type to : kTypes) {
    for (const Type from : kTypes) {
      for (const size_t n : kSizes) {
        for (const size_t offset : {0u, 1u, 3u}) {
          SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << ", " << n
                                          << " elements at " << offset);
          Array source(from, n, offset);
          fill(source, static_cast<uint32_t>(n), true);
          Array actual(to, n, 5 - offset);
          fill(actual, static_cast<uint32_t>(n) + 1, true);
          Array expected(actual);
          accumulate(actual.data(), to, source.data(), from, n);
          accumulate_reference(expected.data(), to, source.data(), from, n);
          ASSERT_TRUE(same(actual, expected));
        }
      }
    }
  }
}

// In bf16 256 + 1 is a tie that falls back to 256; 1 + 3 * 2^-8 is rounded up once, from the sum.
TEST_P(Accumulate, RoundsTheSumOnce) {
  Array dst(Type::bf16, 40), src(Type::f32, 40);
  for (size_t i = 0; i < 40; ++i) {
    dst.set(i, i % 2 == 0 ? 256.0f : 1.0f);
    src.set(i, i % 2 == 0 ? 1.0f : 0x3p-8f);
  }
  accumulate(dst.data(), Type::bf16, src.data(), Type::f32, 40);
  for (size_t i = 0; i < 40; ++i) {
    ASSERT_EQ(dst.get(i), i % 2 == 0 ? 256.0f : 1.015625f) << i;
  }
}

TEST_P(Accumulate, AnArrayMayBeAddedToItself) {
  Array array(Type::f32, 333);
  fill(array, 9, false);
  Array expected(array);
  accumulate(array.data(), Type::f32, array.data(), Type::f32, 333);
  for (size_t i = 0; i < 333; ++i) ASSERT_EQ(array.get(i), 2 * expected.get(i));
}

}  // namespace
}  // namespace meron::kernels
