// SPDX-License-Identifier: Apache-2.0
#include "transport/window_regions.h"

#include <gtest/gtest.h>

#include "base/layout.h"

namespace meron {
namespace {

TEST(WindowRegionsTest, ReleasedRangesAreUsedAgainOnceRecycled) {
  WindowRegions regions(kPage, 8 * kPage);
  const uint64_t first = *regions.allocate(2 * kPage, "a", 0);
  const uint64_t second = *regions.allocate(kPage + 1, "b", 0);
  EXPECT_EQ(kPage, first);
  EXPECT_EQ(3 * kPage, second);
  regions.free(first, 2 * kPage, 0);
  regions.free(second, kPage + 1, 0);
  EXPECT_EQ(5 * kPage, *regions.allocate(kPage, "not before it is recycled", 0));
  regions.recycle(0);
  // Both ranges are one now.
  EXPECT_EQ(first, *regions.allocate(4 * kPage, "c", 0));
}

TEST(WindowRegionsTest, AGroupHasARegionOfItsOwn) {
  WindowRegions regions(0, 64 * kPage);
  regions.open(1);
  EXPECT_EQ(62 * kPage, *regions.allocate(2 * kPage, "of the group", 1));
  const auto more = regions.allocate(1, "more", 1);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(MERON_E_NO_MEMORY, more.error().code());
  EXPECT_EQ(0u, *regions.allocate(62 * kPage, "of the world", 0));
}

}  // namespace
}  // namespace meron
