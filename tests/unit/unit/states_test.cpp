// SPDX-License-Identifier: Apache-2.0
#include "unit/states.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/unit.h"

namespace meron {
namespace {

// The table, written down a second time as the lists that people read in states.h.
TEST(StatesTest, ValuesGoWhereTheTableSays) {
  using enum ValueState;
  const std::vector<std::pair<ValueState, ValueState>> allowed_moves = {
      {partitioned, gathering}, {partitioned, updating},  {gathering, partitioned},
      {gathering, available},   {available, partitioned}, {updating, partitioned}};
  int count = 0;
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      count += allowed(static_cast<ValueState>(from), static_cast<ValueState>(to)) ? 1 : 0;
    }
  }
  EXPECT_EQ(static_cast<int>(allowed_moves.size()), count);
  for (const auto& [from, to] : allowed_moves) EXPECT_TRUE(allowed(from, to));
}

TEST(PartTest, APartOfAParamIsWhereRangeAndParamMeet) {
  Param param;
  param.count = 100;
  param.place.offset = 64;
  EXPECT_EQ((Range{0, 100}), part_of(param, {0, 1000}));
  EXPECT_EQ((Range{0, 36}), part_of(param, {0, 100}));
  EXPECT_EQ((Range{36, 100}), part_of(param, {100, 300}));
  EXPECT_EQ((Range{0, 0}), part_of(param, {0, 64}));
  EXPECT_EQ((Range{0, 0}), part_of(param, {164, 300}));
  param.count = 0;
  EXPECT_EQ(0u, part_of(param, {0, 1000}).size());
}

}  // namespace
}  // namespace meron
