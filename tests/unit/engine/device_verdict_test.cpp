// SPDX-License-Identifier: Apache-2.0
// The verdict on the devices of a group's ranks: by which all of them go on in the same way.
#include "engine/device_verdict.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace meron {
namespace {

template <size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  to = {};
  std::memcpy(to.data(), text.data(), text.size());
}

// Two ranks of each of two hosts, with a device each.
struct Ranks {
  std::vector<DeviceCard> cards = std::vector<DeviceCard>(4);
  std::vector<DevicePlace> places = {{0, 0}, {1, 0}, {2, 1}, {3, 1}};

  Ranks() {
    for (size_t m = 0; m < cards.size(); ++m) {
      DeviceCard& card = cards[m];
      card.state = DeviceCard::usable;
      card.version = 22809;
      put(card.kind, "cuda");
      put(card.library, "2.28.9");
      put(card.bus, m % 2 == 0 ? "0000:19:00.0" : "0000:3b:00.0");
      put(card.name, "NVIDIA H200");
    }
  }
  Plan plan;
  DeviceVerdict judge() const { return judge_devices(cards, places, plan); }
};

TEST(DeviceVerdictTest, DevicesOfTheirOwnAreJoined) {
  const DeviceVerdict verdict = Ranks().judge();
  EXPECT_TRUE(verdict.joins);
  EXPECT_FALSE(verdict.error);
  EXPECT_EQ(verdict.notice, "");
}

TEST(DeviceVerdictTest, AllRanksRegisterValuesOrNone) {
  Ranks ranks;
  EXPECT_FALSE(ranks.judge().registers);
  ranks.plan.param.register_values = true;
  EXPECT_TRUE(ranks.judge().registers);
  put(ranks.cards[1].unregistered, "NCCL 2.18.5 registers no memory");
  const DeviceVerdict verdict = ranks.judge();
  EXPECT_TRUE(verdict.joins);
  EXPECT_FALSE(verdict.registers);
  EXPECT_EQ(verdict.notice, "; no values are registered: rank 1: NCCL 2.18.5 registers no memory");
}

TEST(DeviceVerdictTest, AllRanksGatherWithinOneWindowOrNone) {
  Ranks ranks;
  EXPECT_EQ(ranks.judge().window, 0U);
  ranks.plan.param.gather_window = 1 << 20;
  EXPECT_EQ(ranks.judge().window, 1U << 20);
  EXPECT_EQ(ranks.judge().notice, "");
  // The reason of a rank that has opened none.
  put(ranks.cards[2].reason, "NCCL 2.27.3 gathers by no copy engines");
  const DeviceVerdict verdict = ranks.judge();
  EXPECT_TRUE(verdict.joins);
  EXPECT_EQ(verdict.window, 0U);
  EXPECT_EQ(
      verdict.notice,
      "; values are gathered within no window: rank 2: NCCL 2.27.3 gathers by no copy engines");
}

TEST(DeviceVerdictTest, AWindowThatCannotBeIsAnError) {
  Ranks ranks;
  ranks.plan.param.gather_window = 1 << 20;
  ranks.cards[3].free_bytes = 1 << 19;
  const DeviceVerdict verdict = ranks.judge();
  EXPECT_FALSE(verdict.joins);
  ASSERT_TRUE(verdict.error);
  EXPECT_EQ(verdict.error->code(), MERON_E_NO_MEMORY);
  EXPECT_EQ(verdict.error->info().peer, 3);
}

TEST(DeviceVerdictTest, ASharedDeviceIsNamed) {
  Ranks ranks;
  ranks.places[2].node = 0;
  const DeviceVerdict verdict = ranks.judge();
  EXPECT_FALSE(verdict.joins);
  EXPECT_FALSE(verdict.error);
  EXPECT_EQ(verdict.reason, "ranks 0 and 2 share device 0000:19:00.0 (NVIDIA H200)");
}

TEST(DeviceVerdictTest, LibrariesThatDifferAreAnError) {
  Ranks ranks;
  ranks.cards[3].version = 22703;
  put(ranks.cards[3].library, "2.27.3");
  const DeviceVerdict verdict = ranks.judge();
  EXPECT_FALSE(verdict.joins);
  ASSERT_TRUE(verdict.error);
  EXPECT_EQ(verdict.error->code(), MERON_E_VERSION);
  EXPECT_NE(verdict.error->info().what.find("rank 0 has collectives of version 2.28.9, rank 3 of "
                                            "version 2.27.3"),
            std::string::npos);
}

TEST(DeviceVerdictTest, ARankThatCannotSaysWhy) {
  Ranks ranks;
  ranks.cards[1].state = DeviceCard::refused;
  ranks.cards[2].state = DeviceCard::refused;
  put(ranks.cards[2].reason, "no libnccl.so.2 was found");
  EXPECT_EQ(ranks.judge().reason, "rank 2: no libnccl.so.2 was found");
  // Also where a rank's library is unknown, because it has none.
  put(ranks.cards[2].library, "");
  EXPECT_FALSE(ranks.judge().error);
}

TEST(DeviceVerdictTest, KindsThatDifferGoByTheHost) {
  Ranks ranks;
  put(ranks.cards[2].kind, "emulated");
  const DeviceVerdict verdict = ranks.judge();
  EXPECT_FALSE(verdict.joins);
  EXPECT_EQ(verdict.reason, "rank 0 computes on cuda, rank 2 on emulated");
}

TEST(DeviceVerdictTest, ASlowerDeviceIsMentioned) {
  Ranks ranks;
  put(ranks.cards[3].name, "NVIDIA A100");
  const DeviceVerdict verdict = ranks.judge();
  EXPECT_TRUE(verdict.joins);
  EXPECT_EQ(verdict.notice,
            "; rank 0 has NVIDIA H200, rank 3 NVIDIA A100: the slower sets the pace");
}

}  // namespace
}  // namespace meron
