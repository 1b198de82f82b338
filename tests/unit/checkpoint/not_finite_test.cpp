// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/checkpoint/some_manifest.h"

namespace meron::checkpoint {
namespace {

template <class Element>
NotFinite count(const char* dtype, std::initializer_list<Element> elements) {
  const std::vector<Element> all(elements);
  return count_not_finite(dtype, reinterpret_cast<const std::byte*>(all.data()), all.size());
}

void expect(const NotFinite& found, uint64_t nans, uint64_t infinities) {
  EXPECT_EQ(found.nans, nans);
  EXPECT_EQ(found.infinities, infinities);
}

TEST(NotFinite, CountsNansAndInfinitiesOfEachDtype) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr double kWide = std::numeric_limits<double>::infinity();
  expect(count<float>("F32", {1, kInf, -kInf, std::nanf(""), -std::nanf("1"), 3.4e38F}), 2, 2);
  expect(count<double>("F64", {kWide, std::nan(""), 1e308}), 1, 1);
  expect(count<uint16_t>("BF16", {0x7F80, 0xFF80, 0x7F81, 0x7F7F}), 1, 2);
  expect(count<uint16_t>("F16", {0x7C00, 0xFC01, 0x7BFF}), 1, 1);
  expect(count<uint8_t>("F8_E5M2", {0x7C, 0xFF, 0x7B}), 1, 1);
  expect(count<uint8_t>("F8_E4M3", {0x7F, 0xFF, 0x7E}), 2, 0);
  expect(count<int64_t>("I64", {-1, 0x7FF0000000000000}), 0, 0);
  expect(count<float>("F32", {}), 0, 0);
}

// Whatever the lengths in which a file is read, and wherever its tensors begin.
TEST(NotFinite, CountsTheSameInPiecesOfAnyLength) {
  const char* const text = std::getenv("MERON_TEST_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 20261125;
  std::printf("MERON_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  for (int turn = 0; turn < 300; ++turn) {
    Manifest manifest;
    uint64_t at = below(20);
    for (int t = 0; t < 4; ++t) {
      const std::string dtype = t % 2 == 0 ? "F32" : "BF16";
      const uint64_t elements = below(9);
      manifest.tensors.push_back({"t" + std::to_string(t), "values", dtype, {elements}, {}});
      if (elements > 0) manifest.tensors.back().pieces = {{0, 0, elements, at}};
      at += elements * (t % 2 == 0 ? 4 : 2) + below(4);
    }
    manifest.files = {{"values", 0, 0, at, {}}};
    std::vector<std::byte> bytes(at);
    // Every byte is 0x7F or 0xFF half of the time: many elements are NaN.
    for (std::byte& byte : bytes) byte = below(2) == 0 ? std::byte{0xFF} : std::byte{0x7F};
    NotFiniteByTensor pieces(manifest), whole(manifest);
    whole.take(0, 0, bytes.data(), bytes.size());
    for (uint64_t done = 0; done < at;) {
      const uint64_t step = std::min(at - done, 1 + below(5));
      pieces.take(0, done, bytes.data() + done, step);
      done += step;
    }
    for (size_t t = 0; t < 4; ++t) {
      const Tensor& tensor = manifest.tensors[t];
      const uint64_t from = tensor.pieces.empty() ? 0 : tensor.pieces[0].offset;
      const NotFinite plain = count_not_finite(tensor.dtype, bytes.data() + from, tensor.shape[0]);
      expect(whole.counts()[t], plain.nans, plain.infinities);
      expect(pieces.counts()[t], plain.nans, plain.infinities);
    }
  }
}

TEST(NotFinite, AGapEndsAnElementThatWasCutOff) {
  Manifest manifest;
  manifest.files = {{"values", 0, 0, 8, {}}};
  manifest.tensors = {{"t", "values", "F32", {2}, {{0, 0, 2, 0}}}};
  const std::vector<std::byte> bytes(8, std::byte{0xFF});
  NotFiniteByTensor counts(manifest);
  counts.take(0, 0, bytes.data(), 2);
  counts.take(0, 3, bytes.data(), 5);
  expect(counts.counts()[0], 1, 0);
}

}  // namespace
}  // namespace meron::checkpoint
