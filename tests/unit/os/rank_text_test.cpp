// SPDX-License-Identifier: Apache-2.0
#include "base/rank_text.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace meron {
namespace {

TEST(RankText, ShortensRuns) {
  EXPECT_EQ(ranks_text(std::vector<int>{7}), "rank 7");
  EXPECT_EQ(ranks_text(std::vector<int>{0, 1}), "ranks 0, 1");
  EXPECT_EQ(ranks_text(std::vector<int>{0, 1, 2}), "ranks 0-2");
  EXPECT_EQ(ranks_text(std::vector<int>{0, 2, 3, 5, 6, 7, 9}), "ranks 0, 2, 3, 5-7, 9");
  std::vector<int> many(509);
  std::iota(many.begin(), many.end(), 3);
  EXPECT_EQ(ranks_text(many), "ranks 3-511");
}

}  // namespace
}  // namespace meron
