// SPDX-License-Identifier: Apache-2.0
// The sizes and places of encoded arrays, and the error that encoding counts.
#include "kernels/cpu/quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace meron::kernels {
namespace {

TEST(QuantFormat, SizesCountWholeBlocksAndTheirSteps) {
  static_assert(encoded_blocks(0, {}) == 0 && encoded_bytes(0, {}) == 0);
  static_assert(encoded_bytes(1, {8, 256}) == 260);
  static_assert(encoded_bytes(256, {8, 256}) == 260);
  static_assert(encoded_bytes(257, {8, 256}) == 520);
  static_assert(encoded_bytes(257, {4, 64}) == 5 * 36);
  static_assert(encoded_bytes(uint64_t{1} << 40, {4, 2048}) == (uint64_t{1} << 29) * 1028);
  static_assert(encoded_blocks(std::numeric_limits<uint64_t>::max(), {8, 64}) == uint64_t{1} << 58);
  EXPECT_TRUE((QuantFormat{4, 2048}.valid()));
  for (const QuantFormat bad : {QuantFormat{5, 256}, {8, 32}, {8, 4096}, {4, 192}, {8, 0}}) {
    EXPECT_FALSE(bad.valid());
  }
}

TEST(QuantFormat, AnEncodedArrayIsSplitIntoPayloadAndSteps) {
  const QuantFormat format{4, 128};
  alignas(4) std::byte bytes[3 * 64 + 3 * 4];
  ASSERT_EQ(encoded_bytes(300, format), sizeof(bytes));
  std::byte* base = bytes;
  const Encoded first = encoded_at(base, 300, format), third = encoded_at(base, 300, format, 2);
  EXPECT_EQ(first.payload, base);
  EXPECT_EQ(reinterpret_cast<std::byte*>(first.steps), base + 3 * 64);
  EXPECT_EQ(third.payload, base + 2 * 64);
  EXPECT_EQ(third.steps, first.steps + 2);
}

TEST(QuantError, MergesInAnyOrder) {
  QuantError a, b;
  a.add_block(1, 100);
  b.add_block(8, 200);
  b.add_block(0, 0);
  a.merge(b);
  EXPECT_EQ(a.error_squares, 9);
  EXPECT_EQ(a.squares, 300);
  EXPECT_FLOAT_EQ(a.worst_block, 0.2f);
  EXPECT_DOUBLE_EQ(a.relative(), std::sqrt(0.03));
  EXPECT_EQ(QuantError().relative(), 0);
}

}  // namespace
}  // namespace meron::kernels
