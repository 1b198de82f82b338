// SPDX-License-Identifier: Apache-2.0
#include "plan/text.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace meron {
namespace {

TEST(Utf8, AcceptsEveryLengthAndRefusesWhatIsNotText) {
  for (const char* good : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "aµ形b"}) {
    EXPECT_TRUE(valid_utf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2z", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "a\xE2\x82z"}) {
    EXPECT_FALSE(valid_utf8(bad)) << bad;
  }
}

TEST(InQuotes, IsAlwaysPrintableUtf8) {
  EXPECT_EQ(in_quotes("plain µ"), "\"plain µ\"");
  EXPECT_EQ(in_quotes(std::string_view("a\0b\n\x7f\xff", 6)), "\"a\\x00b\\x0a\\x7f\\xff\"");
  EXPECT_EQ(in_quotes("abcdef", 3), "\"abc...\"");
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 200, 0);
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string text = in_quotes(bytes, 20);
    EXPECT_TRUE(valid_utf8(text));
    EXPECT_LE(text.size(), 30u);
  }
}

TEST(Nearest, CountsEdits) {
  constexpr std::array<std::string_view, 4> kWords = {"sharding", "tier", "dtype", "codec"};
  EXPECT_EQ(nearest("shardign", kWords), "sharding");
  EXPECT_EQ(nearest("Dtype", kWords), "dtype");
  EXPECT_EQ(nearest("tire", kWords), "tier");
  EXPECT_EQ(nearest("code", kWords), "codec");
  EXPECT_EQ(nearest("zebra", kWords), std::nullopt);
  EXPECT_EQ(nearest("", kWords), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'x'), kWords), std::nullopt);
}

}  // namespace
}  // namespace meron
