// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

namespace meron {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(Deadline, NeverDoesNotPass) {
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_EQ(Deadline::never().remaining(), kMax);
}

TEST(Deadline, DurationsOutOfRangeAreNever) {
  EXPECT_TRUE(Deadline::after(kMax).is_never());
  EXPECT_TRUE(Deadline::after(kMax - 1).is_never());
  EXPECT_TRUE(Deadline::after_ms(kMax).is_never());
  EXPECT_TRUE(Deadline::after_ms(kMax / kNanosPerMilli).is_never());
}

TEST(Deadline, ZeroAndNegativeDurationsHavePassed) {
  for (const int64_t duration : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_TRUE(Deadline::after(duration).passed()) << duration;
    EXPECT_EQ(Deadline::after(duration).remaining(), 0) << duration;
  }
}

TEST(Deadline, RemainingFallsToZero) {
  const Deadline deadline = Deadline::after_ms(5);
  EXPECT_GT(deadline.remaining(), 0);
  EXPECT_LE(deadline.remaining(), 5 * kNanosPerMilli);
  while (!deadline.passed()) {
  }
  EXPECT_EQ(deadline.remaining(), 0);
}

}  // namespace
}  // namespace meron
