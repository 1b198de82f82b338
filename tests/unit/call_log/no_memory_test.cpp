// SPDX-License-Identifier: Apache-2.0
// Where memory runs out on a rank, the others must not wait for what it has noted alone. Each test
// fails every allocation in turn.
#include <gtest/gtest.h>

#include "tests/unit/call_log/two_nodes.h"
#include "tests/unit/transport/failing_allocation.h"

namespace meron {
namespace {

TEST(ChannelWithoutMemory, ACallIsBegunOnAllNodesOrNone) {
  const Call gather{CallKind::gather, "layer", 64, 0}, reduce{CallKind::reduce, "layer", 64, 0};
  for_each_allocation([&](int64_t number) {
    SCOPED_TRACE(number);
    TwoNodes two;
    Channel &own = *two.channels[0], &peer = *two.channels[1];
    {
      const FailingAllocation failing(number);
      try {
        ASSERT_TRUE(own.post(reduce).ok());
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(own.posted(), own.own().posted.load());
        if (own.posted() == 0) {
          // Another call may take its place.
          ASSERT_TRUE(own.post(gather).ok());
        }
      }
    }
    EXPECT_EQ(1u, own.posted());
    EXPECT_EQ(1u, own.own().posted.load());
    two.pump(0);
    two.pump(1);
    EXPECT_EQ(1u, peer.member(0).posted.load());
    EXPECT_EQ(own.own().ring[1].fingerprint(), peer.member(0).ring[1].fingerprint());
  });
}

TEST(ChannelWithoutMemory, AGroupIsBrokenOnAllNodesOrNone) {
  const Error error = Error(MERON_E_ABORTED, "rank 0 gave up").blaming(0);
  for_each_allocation([&](int64_t number) {
    SCOPED_TRACE(number);
    TwoNodes two;
    {
      const FailingAllocation failing(number);
      try {
        (void)two.channels[0]->fail(error);
      } catch (const std::bad_alloc&) {
      }
    }
    two.pump(0);
    two.pump(1);
    EXPECT_EQ(two.channels[0]->status().ok(), two.channels[1]->status().ok());
    if (two.channels[0]->status().ok()) (void)two.channels[0]->fail(error);
    two.pump(0);
    two.pump(1);
    for (const auto& channel : two.channels) {
      ASSERT_FALSE(channel->status().ok());
      EXPECT_EQ(MERON_E_ABORTED, channel->status().error().code());
    }
  });
}

TEST(ChannelWithoutMemory, ARankLeavesWhateverFails) {
  for_each_allocation([](int64_t number) {
    SCOPED_TRACE(number);
    TwoNodes two;
    {
      const FailingAllocation failing(number);
      EXPECT_NO_THROW(two.transports[0]->leave());
    }
    EXPECT_TRUE(two.transports[0]->left(0));
    EXPECT_FALSE(two.transports[0]->link()->pump()) << "its link has ended";
  });
}

}  // namespace
}  // namespace meron
