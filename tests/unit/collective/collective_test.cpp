// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "collective/all_reduce.h"
#include "tests/unit/call_log/two_ranks.h"

namespace meron {
namespace {

// A peer may have begun another call and not yet compared: the barrier must not take it for its
// own.
TEST(BarrierTest, DoesNotEndByAnotherCallOfThePeer) {
  TwoRanks two("barrier");
  const Deadline deadline = Deadline::after_ms(1000);
  const auto sequence = two.channels[0]->post({CallKind::barrier, "", 0, 0});
  BarrierOperation barrier(*two.channels[0], deadline);
  barrier.set_sequence(*sequence);
  EXPECT_FALSE(*barrier.advance());
  // The peer's record as it is before its comparison: stored and posted.
  MemberBlock& peer = two.channels[1]->own();
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

TEST(AllReduceTest, SumsInRankOrderAcrossChunks) {
  TwoRanks two("sum");
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
      AllReduceOperation sum(*two.channels[rank], deadline,
                             reinterpret_cast<std::byte*>(values[rank].data()), kCount,
                             NumberType::f32, ReduceOp::sum);
      while (!*sum.advance()) std::this_thread::yield();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(1e8f + static_cast<float>(i % 7), values[0][i]) << i;
  }
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(kCount * sizeof(float), two.counters[0].collective.load());
}

}  // namespace
}  // namespace meron
