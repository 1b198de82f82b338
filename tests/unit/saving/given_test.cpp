// SPDX-License-Identifier: Apache-2.0
#include "saving/given.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "saving/layout.h"
#include "tests/unit/saving/thread_exchange.h"

namespace meron {
namespace {

using testing::HasSubstr;
using Given = std::vector<GivenTensor>;

const std::array<std::byte, 4096> kData{};

GivenTensor part(std::string name, std::vector<uint64_t> shape, uint64_t begin, uint64_t count,
                 std::string kind = "extra", std::string dtype = "F32") {
  return {std::move(name), std::move(kind), std::move(dtype), std::move(shape),
          begin,           count,           kData.data()};
}

Status accept(std::span<const Given> /*all*/) {
  return Ok{};
}

std::string told(const Status& status) {
  return status.ok() ? "" : status.error().info().subject + ": " + status.error().info().what;
}

TEST(GivenTensors, OnePartsNameKindDtypeShapeAndRangeAreChecked) {
  const uint64_t huge = uint64_t{1} << 40;
  EXPECT_EQ(
      told(check_given(Given{part("a", {2, 3}, 6, 0), part("a", {}, 0, 1, "state.step", "I64"),
                             part("b", {3}, 1, 2, "extra.2")},
                       2)),
      "");
  const std::vector<std::pair<GivenTensor, std::string>> refused = {
      {part("", {}, 0, 1), "name"},
      {part("a", {2}, 0, 2, "residual.2"), "residual.2"},
      {part("a", {2}, 0, 2, "gradient"), "gradient"},
      {part("a", {2}, 0, 2, "extra.0"), "extra.0"},
      {part("a", {2}, 0, 2, "state."), "state."},
      {part("a", {2}, 0, 2, "state.Step"), "state.Step"},
      {part("a", {2}, 0, 2, "state." + std::string(65, 'a')), "kind"},
      {part("a", {2}, 0, 2, "extra", "F31"), "F31"},
      {part("a", {2}, 0, 2, "extra", ""), "dtype"},
      {part("a", {2}, 1, 2), "outside of its 2"},
      {part("a", {2}, UINT64_MAX, 2), "outside of its 2"},
      {part("a", {2}, 3, 0), "outside of its 2"},
      {part("a", {huge, huge}, 0, 1), "elements"},
      {part("a", {0, huge, huge}, 0, 0), "elements"},
      {part("a", std::vector<uint64_t>(17, 1), 0, 1), "dimensions"},
  };
  for (const auto& [tensor, words] : refused) {
    const Status status = check_given(Given{tensor}, 2);
    ASSERT_FALSE(status.ok()) << words;
    EXPECT_EQ(status.error().code(), MERON_E_ARGUMENT);
    EXPECT_THAT(told(status), HasSubstr(words));
    EXPECT_FALSE(status.error().info().advice.empty());
  }
  GivenTensor without = part("a", {2}, 0, 2);
  without.data = nullptr;
  EXPECT_THAT(told(check_given(Given{without}, 2)), HasSubstr("data is NULL"));
}

TEST(GivenTensors, PartsOfAllRanksMakeWholeTensors) {
  const auto judged = [](std::vector<Given> given) { return told(check_slices(given)); };
  EXPECT_EQ(
      judged({{part("a", {4, 5}, 8, 12)}, {part("a", {4, 5}, 0, 8), part("a", {4, 5}, 3, 0)}}), "");
  EXPECT_EQ(judged({{part("a", {0}, 0, 0), part("a", {0}, 0, 0)}, {}}), "");
  EXPECT_EQ(judged({{part("a", {2}, 0, 2)}, {part("a", {3}, 0, 3, "values")}}), "");
  EXPECT_EQ(judged({{part("a", {9}, 0, 4)}, {part("a", {9}, 5, 4)}}),
            "a: extra of \"a\": no rank gives elements 4 to 4 of its 9");
  EXPECT_EQ(judged({{part("a", {9}, 0, 4)}, {}}),
            "a: extra of \"a\": no rank gives elements 4 to 8 of its 9");
  EXPECT_EQ(judged({{part("a", {9}, 2, 0)}, {}}),
            "a: extra of \"a\": no rank gives elements 0 to 8 of its 9");
  EXPECT_EQ(judged({{part("a", {9}, 0, 5)}, {}, {part("a", {9}, 4, 5)}}),
            "a: extra of \"a\": elements 4 to 4 are given twice, by ranks 0 and 2");
  EXPECT_EQ(judged({{part("a", {9}, 0, 9), part("a", {9}, 2, 3)}}),
            "a: extra of \"a\": elements 2 to 4 are given twice, by rank 0");
  EXPECT_EQ(judged({{part("a", {9}, 0, 4)}, {part("a", {3, 3}, 4, 5)}}),
            "a: extra of \"a\": rank 0 gives it as F32 [9], rank 1 gives it as F32 [3,3]");
  EXPECT_EQ(judged({{part("a", {9}, 0, 9)}, {part("a", {9}, 0, 0, "extra", "I32")}}),
            "a: extra of \"a\": rank 0 gives it as F32 [9], rank 1 gives it as I32 [9]");
}

TEST(GivenTensors, RankZeroReceivesThePartsOfAllInBoundedSteps) {
  ThreadWorld world(3);
  const auto of_rank = [](int rank) {
    Given given;
    // More than one step of rank 1, none of rank 2.
    const int count = rank == 0 ? 1 : rank == 1 ? 9000 : 0;
    for (int i = 0; i < count; ++i) {
      given.push_back(part(fmt::format("{}.{}.{}", rank, i, std::string(200, 'x')), {3, 0, 7}, 0, 0,
                           i % 2 == 0 ? "state.step" : "values", "I64"));
    }
    return given;
  };
  world.run([&](Exchange& exchange) {
    const auto given = share_given(exchange, of_rank(exchange.rank()), accept);
    ASSERT_TRUE(given.ok());
    for (int r = 0; r < 3; ++r) {
      const bool known = exchange.rank() == 0 || exchange.rank() == r;
      Given expected = known ? of_rank(r) : Given();
      if (r != exchange.rank()) {
        for (GivenTensor& tensor : expected) tensor.data = nullptr;
      }
      EXPECT_EQ((*given)[static_cast<size_t>(r)], expected) << exchange.rank() << " of " << r;
    }
  });
  EXPECT_LE(world.longest_gather() * 3, size_t{4} << 20);
}

TEST(GivenTensors, AFailureOfAnyKindIsThatOfEveryRank) {
  ThreadWorld world(3);
  world.run([&](Exchange& exchange) {
    // Of one rank alone: it is named.
    Result<Given> own = Given();
    if (exchange.rank() == 2) own = Error(MERON_E_PARSE, "bad text", "mend it").on("there");
    auto shared = share_given(exchange, own, accept);
    ASSERT_FALSE(shared.ok());
    EXPECT_EQ(shared.error().code(), MERON_E_PARSE);
    EXPECT_EQ(told(shared.error()),
              exchange.rank() == 2 ? "there: bad text" : "there: rank 2: bad text");
    // Of all together: the same words everywhere.
    shared = share_given(exchange, Given{part("a", {3}, 0, 1)}, accept);
    ASSERT_FALSE(shared.ok());
    EXPECT_EQ(told(shared.error()),
              "a: extra of \"a\": elements 0 to 0 are given twice, by ranks 0 and 1");
    // By the caller's check.
    shared = share_given(exchange, Given(), [](std::span<const Given>) -> Status {
      return Error(MERON_E_DUPLICATE, "taken", "choose another").on("b");
    });
    ASSERT_FALSE(shared.ok());
    EXPECT_EQ(shared.error().code(), MERON_E_DUPLICATE);
    EXPECT_EQ(told(shared.error()), "b: taken");
    EXPECT_EQ(shared.error().info().advice, "choose another");
    EXPECT_TRUE(share_given(exchange, Given(), accept).ok());
  });
}

// Whatever is given, a file's elements are aligned, and the manifest is one that a reader takes.
TEST(SaveLayout, GivenTensorsMakeAValidManifest) {
  std::mt19937 random(7);
  const char* const dtypes[] = {"F64", "F32", "BF16", "U8", "BOOL", "I16"};
  const char* const kinds[] = {"values", "master", "exp_avg", "state.7", "extra"};
  for (int round = 0; round < 50; ++round) {
    const size_t ranks = 1 + random() % 4;
    std::vector<Given> given(ranks);
    for (int i = 0; i < 20; ++i) {
      const std::string dtype = dtypes[random() % 6], kind = kinds[random() % 5];
      const std::vector<uint64_t> shape = {random() % 5, random() % 5};
      for (uint64_t at = 0, all = shape[0] * shape[1]; at < all || (at == 0 && all == 0);) {
        const uint64_t count = all == 0 ? 0 : 1 + random() % (all - at);
        given[random() % ranks].push_back(
            part(fmt::format("t{}", i), shape, at, count, kind, dtype));
        at += count;
        if (all == 0) break;
      }
    }
    ASSERT_EQ(told(check_slices(given)), "");
    const SaveLayout layout({}, given, {});
    checkpoint::Manifest manifest;
    manifest.id = std::string(32, 'a');
    manifest.name = "one";
    manifest.origin.created = "2026-11-25T08:00:00Z";
    manifest.origin.writer = "meron";
    manifest.origin.world = static_cast<uint32_t>(ranks);
    manifest.origin.plan = manifest.extra = "{}";
    std::vector<std::vector<SavedFile>> files;
    for (size_t r = 0; r < ranks; ++r) {
      auto of_rank = layout.files(static_cast<uint32_t>(r), manifest.id);
      ASSERT_EQ(told(of_rank.ok() ? Status(Ok{}) : Status(of_rank.error())), "");
      files.push_back(*std::move(of_rank));
    }
    ASSERT_TRUE(layout.describe(files, &manifest).ok());
    for (checkpoint::File& file : manifest.files) file.crc = {0};
    const auto parsed = checkpoint::parse_manifest(checkpoint::to_json(manifest));
    ASSERT_EQ(told(parsed.ok() ? Status(Ok{}) : Status(parsed.error())), "");
    EXPECT_EQ(parsed->tensors.size(), 20u);
  }
}

}  // namespace
}  // namespace meron
