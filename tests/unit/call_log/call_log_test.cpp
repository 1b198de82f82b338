// SPDX-License-Identifier: Apache-2.0
// Two ranks' calls; more ranks are tested in tests/distributed and tests/fault.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "call_log/channel.h"
#include "call_log/dead_peers.h"
#include "call_log/flight_record.h"
#include "tests/unit/call_log/two_ranks.h"

namespace meron {
namespace {

TEST(ChannelTest, EqualCallsPassInAnyOrderOfArrival) {
  TwoRanks two("equal");
  for (int i = 0; i < 100; ++i) {
    const Call call{CallKind::gather, "layer", 64, static_cast<uint64_t>(i)};
    const int first = i % 2;
    ASSERT_TRUE(two.channels[first]->post(call).ok());
    ASSERT_TRUE(two.channels[1 - first]->post(call).ok());
  }
  EXPECT_EQ(100u, two.counters[0].operations.load());
}

TEST(ChannelTest, TheLaterRankFindsADifferenceAndBothNameBothCalls) {
  TwoRanks two("differ");
  ASSERT_TRUE(two.channels[0]->post({CallKind::gather, "layer.1", 64, 1}).ok());
  const auto late = two.channels[1]->post({CallKind::reduce, "layer.0", 64, 1});
  ASSERT_FALSE(late.ok());
  const Status early = two.channels[0]->status();
  ASSERT_FALSE(early.ok());
  for (const Error* error : {&late.error(), &early.error()}) {
    EXPECT_EQ(MERON_E_MISMATCH, error->code());
    EXPECT_NE(std::string::npos, error->info().what.find("rank 0 called gather of 'layer.1'"));
    EXPECT_NE(std::string::npos, error->info().what.find("rank 1 called reduce of 'layer.0'"));
  }
  // Sticky: nothing can be begun on a broken group.
  EXPECT_FALSE(two.channels[0]->post({CallKind::barrier, "", 0, 0}).ok());
}

TEST(ChannelTest, ARankMayRunARingAheadAndNotFurther) {
  TwoRanks two("ahead");
  Channel& channel = *two.channels[0];
  const Call call{CallKind::gather, "layer", 64, 0};
  for (uint64_t i = 0; i < kRing; ++i) {
    ASSERT_TRUE(channel.has_room()) << i;
    ASSERT_TRUE(channel.post(call).ok()) << i;
  }
  EXPECT_FALSE(channel.has_room());
  EXPECT_TRUE(channel.check_stragglers(Deadline::after_ms(1000)).ok());
  const Status late = channel.check_stragglers(Deadline::after_ms(0));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(MERON_E_TIMEOUT, late.error().code());
  EXPECT_EQ(1, late.error().info().peer);
}

// A barrier that is still pending is compared again when it ends. A peer may be a whole ring ahead
// of it by then.
TEST(ChannelTest, ASlotThatAPeerHasUsedAgainIsNotCompared) {
  TwoRanks two("reused");
  const Call barrier{CallKind::barrier, "", 0, 0}, gather{CallKind::gather, "layer", 64, 0};
  for (auto& channel : two.channels) {
    ASSERT_TRUE(channel->post(barrier).ok());
    ASSERT_TRUE(channel->post(gather).ok());
  }
  for (uint64_t i = 3; i <= kRing + 1; ++i) {
    ASSERT_TRUE(two.channels[1]->has_room()) << i;
    ASSERT_TRUE(two.channels[1]->post(gather).ok()) << i;
  }
  const Status verified = two.channels[0]->verify(1);
  EXPECT_TRUE(verified.ok()) << verified.error().info().what;
  EXPECT_TRUE(two.channels[0]->status().ok());
  EXPECT_TRUE(two.channels[1]->status().ok());
}

TEST(ChannelTest, TheFirstFailureIsTheGroups) {
  TwoRanks two("first");
  (void)two.channels[1]->fail(Error(MERON_E_ABORTED, "the first").blaming(1));
  const Error held = two.channels[0]->fail(Error(MERON_E_TIMEOUT, "the second"));
  EXPECT_EQ(MERON_E_ABORTED, held.code());
  EXPECT_EQ(1, held.info().peer);
  EXPECT_EQ(0, held.info().rank);
}

TEST(DeadPeersTest, AMemberThatClosedIsNamedWithItsLastCall) {
  TwoRanks two("closed");
  const Call call{CallKind::gather, "layer", 64, 0};
  ASSERT_TRUE(two.channels[1]->post(call).ok());
  ASSERT_TRUE(two.channels[0]->post(call).ok());
  ASSERT_TRUE(two.channels[0]->check_present(2, Deadline::never()).ok());
  two.transports[1]->leave();
  // Its earlier calls count.
  EXPECT_TRUE(two.channels[0]->check_present(1, Deadline::never()).ok());
  EXPECT_TRUE(two.channels[0]->check_alive().ok());
  const Status missing = two.channels[0]->check_present(2, Deadline::never());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(MERON_E_PEER_CLOSED, missing.error().code());
  EXPECT_EQ(1, missing.error().info().peer);
  EXPECT_NE(std::string::npos, missing.error().info().what.find("made call 1, gather of 'layer'"));
}

TEST(DeadPeersTest, OnlyMembersThatAreMissingAreNamed) {
  TwoRanks two("certain");
  two.transports[1]->leave();
  const Channel& channel = *two.channels[0];
  const Departures gone(channel);
  EXPECT_TRUE(gone.closed(1));
  EXPECT_EQ(-1, gone.first_dead());
  EXPECT_FALSE(find_departure(channel, gone, {}, [] { return true; }));
  // It shares memory with this rank: nothing is on its way.
  const auto error = find_departure(channel, gone, {1}, [] { return false; });
  ASSERT_TRUE(error);
  EXPECT_EQ(MERON_E_PEER_CLOSED, error->code());
}

// Readers see the last call that was posted, or that its slot is being used again.
TEST(CallSlotTest, ARecordIsOfOneCall) {
  CallSlot slot;
  std::atomic<uint64_t> posted{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t call = 1; !stop.load(); ++call) {
      CallRecord record;
      record.sequence = record.fingerprint = record.bytes = call;
      slot.store(record);
      posted.store(call);
    }
  });
  int whole = 0, mixed = 0;
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t call = posted.load();
    const CallRecord record = slot.load();
    if (record.sequence != call) continue;
    ++whole;
    mixed += record.fingerprint == call && record.bytes == call ? 0 : 1;
  }
  stop.store(true);
  writer.join();
  EXPECT_GT(whole, 0);
  EXPECT_EQ(mixed, 0);
}

TEST(FlightRecordTest, KeepsTheLastCallsOfEveryRank) {
  TwoRanks two("record");
  for (uint64_t i = 1; i <= kRing + 10; ++i) {
    for (auto& channel : two.channels) {
      // A name cut inside of a character must not break the JSON.
      ASSERT_TRUE(channel->post({CallKind::gather, std::string(86, 'x') + "ä", i, 0}).ok());
    }
  }
  const auto record = nlohmann::json::parse(flight_record_json(*two.channels[0]));
  ASSERT_EQ(2u, record["ranks"].size());
  for (const auto& rank : record["ranks"]) {
    EXPECT_EQ(kRing + 10, rank["calls_begun"]);
    ASSERT_EQ(kRing, rank["calls"].size());
    EXPECT_EQ(11u, rank["calls"].front()["sequence"]);
    EXPECT_EQ(kRing + 10, rank["calls"].back()["bytes"]);
    EXPECT_EQ("gather", rank["calls"].back()["call"]);
  }
}

}  // namespace
}  // namespace meron
