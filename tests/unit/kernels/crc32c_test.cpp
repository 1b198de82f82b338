// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace meron::kernels {
namespace {

using Bytes = std::vector<unsigned char>;
using Checksum = uint32_t (*)(const void*, size_t, uint32_t);

// The definition: one bit after the other.
uint32_t bitwise(const void* data, size_t bytes, uint32_t seed) {
  uint32_t crc = ~seed;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<const unsigned char*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

Bytes random_bytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

class Crc32c : public testing::TestWithParam<Checksum> {
 protected:
  uint32_t of(const Bytes& bytes) const { return GetParam()(bytes.data(), bytes.size(), 0); }
};

INSTANTIATE_TEST_SUITE_P(By, Crc32c, testing::Values(&crc32c, &crc32c_by_table),
                         [](const testing::TestParamInfo<Checksum>& info) {
                           return info.param == &crc32c ? "ThisCpu" : "Table";
                         });

// RFC 3720, B.4.
TEST_P(Crc32c, YieldsTheValuesOfTheStandard) {
  Bytes up(32), down(32);
  std::iota(up.begin(), up.end(), 0);
  std::iota(down.rbegin(), down.rend(), 0);
  EXPECT_EQ(of(Bytes(32, 0)), 0x8a9136aau);
  EXPECT_EQ(of(Bytes(32, 0xff)), 0x62a8ab43u);
  EXPECT_EQ(of(up), 0x46dd794eu);
  EXPECT_EQ(of(down), 0x113fdb5cu);
  const Bytes read_command = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                              0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00,
                              0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
                              0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                              0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(of(read_command), 0xd9963a56u);
  const std::string digits = "123456789";
  EXPECT_EQ(of(Bytes(digits.begin(), digits.end())), 0xe3069283u);
  EXPECT_EQ(of({}), 0u);
}

TEST_P(Crc32c, EveryLengthAndAlignmentEqualsTheDefinition) {
  constexpr size_t kLengths = 4200;
  for (size_t offset = 0; offset < 8; ++offset) {
    const Bytes bytes = random_bytes(offset + kLengths, static_cast<uint32_t>(offset));
    const unsigned char* from = bytes.data() + offset;
    uint32_t expected = 0;
    for (size_t n = 0; n <= kLengths; ++n) {
      if (n != 0) expected = bitwise(from + n - 1, 1, expected);
      ASSERT_EQ(GetParam()(from, n, 0), expected) << n << " bytes at " << offset;
    }
  }
}

// Long enough for several of the long stretches, and what follows them.
TEST_P(Crc32c, LongInputsEqualTheDefinition) {
  for (const size_t n : {6143u, 6144u, 6145u, 20000u, 100003u}) {
    const Bytes bytes = random_bytes(n, 7);
    ASSERT_EQ(of(bytes), bitwise(bytes.data(), n, 0)) << n;
  }
}

TEST_P(Crc32c, ContinuesWhereAnotherEnded) {
  const Bytes bytes = random_bytes(15000, 3);
  const uint32_t whole = of(bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut += 1 + cut / 5) {
    const uint32_t first = GetParam()(bytes.data(), cut, 0);
    ASSERT_EQ(GetParam()(bytes.data() + cut, bytes.size() - cut, first), whole) << cut;
  }
}

TEST_P(Crc32c, SeesEverySingleBit) {
  Bytes bytes = random_bytes(700, 5);
  const uint32_t whole = of(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    ASSERT_NE(of(bytes), whole) << bit;
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
}

}  // namespace
}  // namespace meron::kernels
