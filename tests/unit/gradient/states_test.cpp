// SPDX-License-Identifier: Apache-2.0
#include "gradient/states.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace meron {
namespace {

// The table, written down a second time as the list that people read in states.h.
TEST(StatesTest, GradientsGoWhereTheTableSays) {
  using enum GradientState;
  const std::vector<std::pair<GradientState, GradientState>> allowed_moves = {
      {empty, filling},  {filling, reducing}, {filling, partial}, {reducing, partial},
      {reducing, ready}, {partial, filling},  {ready, empty},     {empty, ready},
      {partial, ready},  {partial, empty}};
  int count = 0;
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      count += allowed(static_cast<GradientState>(from), static_cast<GradientState>(to)) ? 1 : 0;
    }
  }
  EXPECT_EQ(static_cast<int>(allowed_moves.size()), count);
  for (const auto& [from, to] : allowed_moves) EXPECT_TRUE(allowed(from, to));
}

}  // namespace
}  // namespace meron
