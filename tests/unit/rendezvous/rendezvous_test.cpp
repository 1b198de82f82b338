// SPDX-License-Identifier: Apache-2.0
// One rank's view of a meeting; several processes meet in tests/fault and tests/distributed.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "rendezvous/join.h"
#include "rendezvous/token.h"
#include "tests/unit/rendezvous/meeting.h"

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

}  // namespace
}  // namespace meron
