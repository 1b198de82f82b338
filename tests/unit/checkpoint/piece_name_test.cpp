// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/piece_name.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace meron::checkpoint {
namespace {

TEST(PieceName, NamesOfWholeTensorsAndParts) {
  EXPECT_EQ(piece_name("values", "h.0.w", 0, 12, true), "h.0.w");
  EXPECT_EQ(piece_name("values", "h.0.w", 3, 12, false), "h.0.w[3:12]");
  EXPECT_EQ(piece_name("exp_avg", "h.0.w", 0, 12, true), "exp_avg:h.0.w");
  EXPECT_EQ(piece_name("residual.3", "w", 0, 5, false), "residual.3:w[0:5]");
  EXPECT_EQ(parse_piece_name("residual.3:w[0:5]"),
            (PieceName{"residual.3", "w", PieceName::Range{0, 5}}));
  EXPECT_EQ(parse_piece_name("h.0.w"), (PieceName{"values", "h.0.w", {}}));
}

TEST(PieceName, StatesOfAnOptimizerHaveKeys) {
  const std::string longest = "state." + std::string(kMaxStateKey, 'z');
  for (const std::string& kind : {std::string("state.step"), std::string("state.max_exp_avg_sq"),
                                  std::string("state.8"), longest}) {
    EXPECT_TRUE(valid_kind(kind)) << kind;
    EXPECT_EQ(parse_piece_name(piece_name(kind, "w", 1, 2, false)),
              (PieceName{kind, "w", PieceName::Range{1, 2}}));
    EXPECT_EQ(piece_name("values", kind + ":w", 0, 4, true), "values:" + kind + ":w");
  }
  for (const std::string& kind :
       {std::string("state"), std::string("state."), std::string("state.Step"),
        std::string("state.a.b"), std::string("state.a b"), std::string("states.a"),
        longest + "z"}) {
    EXPECT_FALSE(valid_kind(kind)) << kind;
  }
}

TEST(PieceName, TextThatIsNoKindOrRangeBelongsToTheName) {
  for (const char* text :
       {"a:b", "Values:w", "residual.:w", "residual.01:w", "residual.4294967296:w", "extra.-1:w",
        "w[1]", "w[1:]", "w[:2]", "w[2:1]", "w[01:2]", "w[+1:2]", "w[1:2", "w1:2]",
        "w[1:18446744073709551616]", "w[1:2:3]", "", "]", "[:]"}) {
    EXPECT_EQ(parse_piece_name(text), (PieceName{"values", text, {}})) << text;
  }
}

TEST(PieceName, NameThatReadsLikeAnotherPieceIsWrittenOut) {
  EXPECT_EQ(piece_name("values", "master:w", 0, 4, true), "values:master:w");
  EXPECT_EQ(piece_name("values", "w[0:2]", 0, 4, true), "w[0:2][0:4]");
  EXPECT_EQ(piece_name("values", "__metadata__", 0, 4, true), "values:__metadata__");
}

TEST(PieceName, EveryPieceHasANameOfItsOwn) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const char* const parts[] = {"values", "master", "extra.1", ":", "[",
                               "]",      "0",      "12",      "w", "[0:2]"};
  const char* const kinds[] = {"values", "master", "extra.1", "exp_avg_sq"};
  std::set<std::string> texts, pieces;
  for (int i = 0; i < 20'000; ++i) {
    std::string name;
    for (size_t n = random() % 5; n > 0; --n) name += parts[random() % std::size(parts)];
    const std::string kind = kinds[random() % std::size(kinds)];
    const bool whole = random() % 2 == 0;
    const uint64_t begin = whole ? 0 : random() % 3, end = whole ? 9 : begin + random() % 3;
    const std::string text = piece_name(kind, name, begin, end, whole);
    const PieceName parsed = parse_piece_name(text);
    ASSERT_EQ(parsed.kind, kind) << text;
    ASSERT_EQ(parsed.name, name) << text;
    if (parsed.range) {
      ASSERT_EQ(*parsed.range, (PieceName::Range{begin, end})) << text;
    }
    if (!whole) {
      ASSERT_TRUE(parsed.range.has_value()) << text;
    }
    texts.insert(text);
    pieces.insert(kind + '\n' + name + '\n' + std::to_string(begin) + '-' + std::to_string(end));
  }
  EXPECT_EQ(texts.size(), pieces.size());
}

TEST(FileName, StaysInItsDirectory) {
  EXPECT_TRUE(check_file_name("values-00000-of-00001.safetensors").ok());
  EXPECT_TRUE(check_file_name(std::string(255, 'a')).ok());
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("/x"),
        std::string("a/b"), std::string("a\\b"), std::string(".hidden"), std::string("a\0b", 3),
        std::string("a\n"), std::string("a\x80"), std::string(256, 'a')}) {
    const Status status = check_file_name(bad);
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_FALSE(status.error().info().advice.empty());
  }
}

}  // namespace
}  // namespace meron::checkpoint
