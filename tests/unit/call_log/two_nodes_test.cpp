// SPDX-License-Identifier: Apache-2.0
// Calls of two ranks that share no memory.
#include "tests/unit/call_log/two_nodes.h"

#include <gtest/gtest.h>

namespace meron {
namespace {

const Call kGather{CallKind::gather, "layer", 64, 0};
const Call kReduce{CallKind::reduce, "layer", 64, 0};

// A rank that has begun two calls stalls while its peer, which has received them, continues as far
// as it may. All of the peer's calls then arrive at once.
TEST(TwoNodesTest, CallsOfAWholeRingMayArriveAtOnce) {
  TwoNodes two;
  Channel &early = *two.channels[0], &late = *two.channels[1];
  ASSERT_TRUE(early.post(kReduce).ok());
  ASSERT_TRUE(early.post(kGather).ok());
  two.pump(0);
  two.pump(1);
  ASSERT_TRUE(late.post(kReduce).ok());
  for (uint64_t i = 2; i <= kRing + 1; ++i) {
    ASSERT_TRUE(late.has_room()) << i;
    ASSERT_TRUE(late.post(kGather).ok()) << i;
  }
  EXPECT_FALSE(late.has_room());
  two.pump(1);
  two.pump(0);
  const auto agreed = early.agreed(1);
  ASSERT_TRUE(agreed.ok()) << agreed.error().info().what;
  EXPECT_TRUE(*agreed);
  for (uint64_t i = 3; i <= kRing + 1; ++i) ASSERT_TRUE(early.post(kGather).ok()) << i;
  const auto all = early.agreed(kRing + 1);
  ASSERT_TRUE(all.ok()) << all.error().info().what;
  EXPECT_TRUE(*all);
}

// Neither rank has received the other's call when it begins its own.
TEST(TwoNodesTest, ADifferenceIsFoundByTheNextCall) {
  TwoNodes two;
  Channel &early = *two.channels[0], &late = *two.channels[1];
  ASSERT_TRUE(early.post(kReduce).ok());
  ASSERT_TRUE(early.post(kGather).ok());
  ASSERT_TRUE(late.post(kGather).ok());
  two.pump(0);
  two.pump(1);
  const auto second = late.post(kGather);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(MERON_E_MISMATCH, second.error().code());
  two.pump(1);
  two.pump(0);
  ASSERT_FALSE(early.status().ok());
  EXPECT_EQ(MERON_E_MISMATCH, early.status().error().code());
}

}  // namespace
}  // namespace meron
