// SPDX-License-Identifier: Apache-2.0
#include "memory/offset_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace meron {
namespace {

// The same promises kept the slow way: one flag per unit of space.
class Model {
 public:
  explicit Model(size_t capacity) : taken_(capacity) {}

  // The smallest free run that holds `bytes` at `align`, the lowest of equals.
  std::optional<uint64_t> best(uint64_t bytes, uint64_t align) const {
    std::optional<uint64_t> found;
    uint64_t found_run = UINT64_MAX;
    for (size_t begin = 0; begin < taken_.size();) {
      if (taken_[begin]) {
        ++begin;
        continue;
      }
      size_t end = begin;
      while (end < taken_.size() && !taken_[end]) ++end;
      const uint64_t start = (begin + align - 1) / align * align;
      if (start + bytes <= end && end - begin < found_run) {
        found = start;
        found_run = end - begin;
      }
      begin = end;
    }
    return found;
  }
  void set(uint64_t offset, uint64_t bytes, bool taken) {
    for (uint64_t i = offset; i < offset + bytes; ++i) {
      ASSERT_NE(taken_[i], taken) << "a range was given twice";
      taken_[i] = taken;
    }
  }
  uint64_t used() const {
    return static_cast<uint64_t>(std::count(taken_.begin(), taken_.end(), true));
  }

 private:
  std::vector<bool> taken_;
};

TEST(OffsetAllocator, AgreesWithTheModelThroughRandomCalls) {
  constexpr uint64_t kCapacity = 500;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    OffsetAllocator offsets(kCapacity);
    Model model(kCapacity);
    std::vector<std::pair<uint64_t, uint64_t>> live;
    for (int step = 0; step < 500; ++step) {
      if (live.empty() || random() % 100 < 55) {
        const uint64_t bytes = 1 + random() % 60;
        const uint64_t align = 1ull << random() % 5;
        const auto expected = model.best(bytes, align);
        const auto offset = offsets.allocate(bytes, align);
        ASSERT_EQ(offset, expected) << "seed " << seed << " step " << step;
        if (!offset) continue;
        model.set(*offset, bytes, true);
        live.emplace_back(*offset, bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        const auto [offset, bytes] = live.back();
        live.pop_back();
        ASSERT_TRUE(offsets.free(offset));
        ASSERT_FALSE(offsets.free(offset));
        model.set(offset, bytes, false);
      }
      ASSERT_EQ(offsets.used(), model.used());
      ASSERT_EQ(offsets.used() + offsets.available(), kCapacity);
    }
    for (const auto& [offset, bytes] : live) ASSERT_TRUE(offsets.free(offset));
    EXPECT_EQ(offsets.used(), 0u);
    EXPECT_EQ(offsets.largest_free(), kCapacity) << "free ranges were not joined";
  }
}

TEST(OffsetAllocator, ServesTheWholeCapacityAndNoMore) {
  OffsetAllocator offsets(100);
  EXPECT_EQ(offsets.allocate(101), std::nullopt);
  EXPECT_EQ(offsets.allocate(UINT64_MAX), std::nullopt);
  EXPECT_EQ(offsets.allocate(100), 0u);
  EXPECT_EQ(offsets.allocate(1), std::nullopt);
  EXPECT_EQ(offsets.largest_free(), 0u);
  EXPECT_TRUE(offsets.free(0));
  EXPECT_EQ(offsets.allocate(1, 128), 0u);
  EXPECT_EQ(offsets.allocate(1, 128), std::nullopt);
}

TEST(OffsetAllocator, RefusesWhatMakesNoSense) {
  OffsetAllocator offsets(100);
  EXPECT_EQ(offsets.allocate(0), std::nullopt);
  EXPECT_EQ(offsets.allocate(1, 0), std::nullopt);
  EXPECT_EQ(offsets.allocate(1, 3), std::nullopt);
  EXPECT_FALSE(offsets.free(0));
  ASSERT_EQ(offsets.allocate(10), 0u);
  EXPECT_FALSE(offsets.free(5));
  OffsetAllocator none(0);
  EXPECT_EQ(none.allocate(1), std::nullopt);
  EXPECT_EQ(none.largest_free(), 0u);
}

TEST(OffsetAllocator, WorksUpToTheLastByteOfTheRange) {
  OffsetAllocator offsets(UINT64_MAX);
  EXPECT_EQ(offsets.allocate(UINT64_MAX - 10), 0u);
  EXPECT_EQ(offsets.allocate(10), UINT64_MAX - 10);
  EXPECT_EQ(offsets.allocate(1), std::nullopt);
  EXPECT_TRUE(offsets.free(UINT64_MAX - 10));
  EXPECT_EQ(offsets.allocate(1, 1ull << 63), std::nullopt);
}

}  // namespace
}  // namespace meron
