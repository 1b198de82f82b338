// SPDX-License-Identifier: Apache-2.0
#include "schedule/order_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace meron {
namespace {

TEST(OrderTest, AnEmptyOneHasNothing) {
  const OrderIndex order;
  EXPECT_EQ(0u, order.size());
  EXPECT_EQ(OrderIndex::kNever, order.next(3, 0));
  EXPECT_EQ(0u, order.distance(0, 0));
}

// Against the plain search that it saves.
TEST(OrderTest, NextAndDistanceAreThoseOfASearch) {
  std::mt19937 random(7);  // NOLINT: the same in every run
  for (int round = 0; round < 50; ++round) {
    const size_t units = 1 + random() % 7;
    std::vector<uint64_t> elements(units);
    for (uint64_t& each : elements) each = random() % 100;
    std::vector<uint32_t> uses(random() % 30);
    for (uint32_t& each : uses) each = static_cast<uint32_t>(random() % units);
    const OrderIndex order(uses, elements);
    for (size_t from = 0; from <= uses.size(); ++from) {
      for (uint32_t unit = 0; unit < units; ++unit) {
        const auto found = std::find(uses.begin() + static_cast<ptrdiff_t>(from), uses.end(), unit);
        const size_t expected =
            found == uses.end() ? OrderIndex::kNever : static_cast<size_t>(found - uses.begin());
        EXPECT_EQ(expected, order.next(unit, from));
      }
      uint64_t sum = 0;
      for (size_t to = from; to <= uses.size(); ++to) {
        EXPECT_EQ(sum, order.distance(from, to));
        if (to < uses.size()) sum += elements[uses[to]];
      }
    }
  }
}

}  // namespace
}  // namespace meron
