// SPDX-License-Identifier: Apache-2.0
// One rank's view of the transport; several ranks are tested in tests/distributed and tests/fault.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "call_log/channel.h"
#include "call_log/flight_record.h"
#include "collective/collective.h"
#include "rendezvous/join.h"
#include "rendezvous/token.h"

namespace meron {
namespace {

const std::string kHex = "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";

TEST(TokenTest, Reads64Digits) {
  const auto token = parse_token(kHex + "\n");
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(std::byte{0x11}, token->bytes[1]);
  EXPECT_EQ(std::byte{0xff}, token->bytes[16]);
  EXPECT_EQ("00112233445566778899aabbccddeeff", token->public_name());
}

TEST(TokenTest, RefusesWhatIsNone) {
  EXPECT_EQ(MERON_E_AUTH, parse_token("").error().code());
  EXPECT_EQ(MERON_E_AUTH, parse_token(kHex.substr(1)).error().code());
  EXPECT_EQ(MERON_E_AUTH, parse_token(std::string(64, 'g')).error().code());
}

MeetingOptions meeting(int rank, int world_size, int64_t timeout_ms = 10'000) {
  MeetingOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.window_reserve = 64 << 20;
  options.arena.reserve = 64 << 20;
  options.deadline = Deadline::after_ms(timeout_ms);
  return options;
}

// Two ranks in two threads of the test.
struct Pair {
  explicit Pair(const std::string& job) {
    std::thread other(
        [&] { joined[1] = std::make_unique<Result<Joined>>(join_local(meeting(1, 2), job)); });
    joined[0] = std::make_unique<Result<Joined>>(join_local(meeting(0, 2), job));
    other.join();
    for (int rank = 0; rank < 2; ++rank) {
      transports[rank] = std::make_unique<Transport>(std::move(**joined[rank]));
      const auto offset = transports[rank]->window_allocate(group_bytes(2), "test");
      EXPECT_TRUE(transports[rank]->window().reserve(*offset, group_bytes(2)).ok());
      channels[rank] = std::make_unique<Channel>(*transports[rank], counters[rank],
                                                 Members::world(2, rank), *offset, 0);
    }
  }
  std::unique_ptr<Result<Joined>> joined[2];
  std::unique_ptr<Transport> transports[2];
  Counters counters[2];
  std::unique_ptr<Channel> channels[2];
};

TEST(JoinLocalTest, NamesTheMissingRankAndTheSecondOfTwo) {
  const auto late = join_local(meeting(0, 2, 50), "alone");
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(MERON_E_TIMEOUT, late.error().code());
  EXPECT_EQ(1, late.error().info().peer);

  std::thread first([] { (void)join_local(meeting(0, 2, 300), "twice").ok(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto second = join_local(meeting(0, 2, 300), "twice");
  EXPECT_EQ(MERON_E_DUPLICATE, second.error().code());
  const auto other_size = join_local(meeting(1, 3, 300), "twice");
  EXPECT_EQ(MERON_E_MISMATCH, other_size.error().code());
  first.join();
}

TEST(ChannelTest, EqualCallsPassInAnyOrderOfArrival) {
  Pair pair("equal");
  for (int i = 0; i < 100; ++i) {
    const Call call{CallKind::gather, "layer", 64, static_cast<uint64_t>(i)};
    const int first = i % 2;
    ASSERT_TRUE(pair.channels[first]->post(call).ok());
    ASSERT_TRUE(pair.channels[1 - first]->post(call).ok());
  }
  EXPECT_EQ(100u, pair.counters[0].operations.load());
}

TEST(ChannelTest, TheLaterRankFindsADifferenceAndBothNameBothCalls) {
  Pair pair("differ");
  ASSERT_TRUE(pair.channels[0]->post({CallKind::gather, "layer.1", 64, 1}).ok());
  const auto late = pair.channels[1]->post({CallKind::reduce, "layer.0", 64, 1});
  ASSERT_FALSE(late.ok());
  const Status early = pair.channels[0]->status();
  ASSERT_FALSE(early.ok());
  for (const Error* error : {&late.error(), &early.error()}) {
    EXPECT_EQ(MERON_E_MISMATCH, error->code());
    EXPECT_NE(std::string::npos, error->info().what.find("rank 0 called gather of 'layer.1'"));
    EXPECT_NE(std::string::npos, error->info().what.find("rank 1 called reduce of 'layer.0'"));
  }
  // Sticky: nothing can be begun on a broken group.
  EXPECT_FALSE(pair.channels[0]->post({CallKind::barrier, "", 0, 0}).ok());
}

// A peer may have begun another call and not yet compared: the barrier must not take it for its
// own.
TEST(BarrierTest, DoesNotEndByAnotherCallOfThePeer) {
  Pair pair("barrier");
  const Deadline deadline = Deadline::after_ms(1000);
  const auto sequence = pair.channels[0]->post({CallKind::barrier, "", 0, 0});
  BarrierOperation barrier(*pair.channels[0], deadline);
  barrier.set_sequence(*sequence);
  EXPECT_FALSE(*barrier.advance());
  // The peer's record as it is before its comparison: stored and posted.
  MemberBlock& peer = pair.channels[1]->own();
  CallRecord record;
  record.sequence = *sequence;
  record.fingerprint = 42;
  record.operation = static_cast<uint32_t>(CallKind::gather);
  peer.ring[*sequence % kRing].store(record);
  peer.posted.store(*sequence);
  const auto ended = barrier.advance();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(MERON_E_MISMATCH, ended.error().code());
}

TEST(ChannelTest, ARankMayRunARingAheadAndNotFurther) {
  Pair pair("ahead");
  Channel& channel = *pair.channels[0];
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

TEST(ChannelTest, TheFirstFailureIsTheGroups) {
  Pair pair("first");
  (void)pair.channels[1]->fail(Error(MERON_E_ABORTED, "the first").blaming(1));
  const Error held = pair.channels[0]->fail(Error(MERON_E_TIMEOUT, "the second"));
  EXPECT_EQ(MERON_E_ABORTED, held.code());
  EXPECT_EQ(1, held.info().peer);
  EXPECT_EQ(0, held.info().rank);
}

TEST(FlightRecordTest, KeepsTheLastCallsOfEveryRank) {
  Pair pair("record");
  for (uint64_t i = 1; i <= kRing + 10; ++i) {
    for (auto& channel : pair.channels) {
      // A name cut inside of a character must not break the JSON.
      ASSERT_TRUE(channel->post({CallKind::gather, std::string(86, 'x') + "ä", i, 0}).ok());
    }
  }
  const auto record = nlohmann::json::parse(flight_record_json(*pair.channels[0]));
  ASSERT_EQ(2u, record["ranks"].size());
  for (const auto& rank : record["ranks"]) {
    EXPECT_EQ(kRing + 10, rank["calls_begun"]);
    ASSERT_EQ(kRing, rank["calls"].size());
    EXPECT_EQ(11u, rank["calls"].front()["sequence"]);
    EXPECT_EQ(kRing + 10, rank["calls"].back()["bytes"]);
    EXPECT_EQ("gather", rank["calls"].back()["call"]);
  }
}

TEST(AllReduceTest, SumsInRankOrderAcrossChunks) {
  Pair pair("sum");
  const Deadline deadline = Deadline::after_ms(10'000);
  constexpr size_t kCount = 3 * kStagingChunk / sizeof(float) + 5;
  std::vector<float> values[2];
  std::thread ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    values[rank].resize(kCount);
    // 1e8 + 1 is not an f32: the order of a longer sum would show.
    for (size_t i = 0; i < kCount; ++i) {
      values[rank][i] = rank == 0 ? 1e8f : static_cast<float>(i % 7);
    }
    ranks[rank] = std::thread([&, rank] {
      AllReduceOperation sum(*pair.channels[rank], deadline,
                             reinterpret_cast<std::byte*>(values[rank].data()), kCount, DType::f32,
                             false);
      while (!*sum.advance()) std::this_thread::yield();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(1e8f + static_cast<float>(i % 7), values[0][i]) << i;
  }
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(kCount * sizeof(float), pair.counters[0].collective.load());
}

}  // namespace
}  // namespace meron
