// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "checkpoint/piece_name.h"
#include "some_manifest.h"

namespace meron::checkpoint {
namespace {

using Entries = std::vector<SafetensorsEntry>;
using Metadata = std::map<std::string, std::string>;

std::string head_of(std::string_view json) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return out + std::string(json);
}

TEST(SafetensorsFile, EveryDtypeByItsSize) {
  Entries entries;
  uint64_t at = 0;
  for (const std::string_view dtype : safetensors_dtypes()) {
    const uint64_t bytes = 6 * uint64_t{safetensors_element_bytes(dtype)};
    entries.push_back({"t." + std::string(dtype), std::string(dtype), {2, 3}, at, at + bytes});
    at += bytes;
  }
  EXPECT_EQ(at, 6u * (8 + 4 + 2 + 2 + 8 + 4 + 2 + 1 + 8 + 4 + 2 + 1 + 1 + 1 + 1));
  const Result<std::string> head = compose_safetensors(entries, {});
  ASSERT_TRUE(head.ok()) << head.error().info().what;
  const Result<SafetensorsHeader> read = parse_safetensors(*head, head->size() + at);
  ASSERT_TRUE(read.ok()) << read.error().info().what;
  EXPECT_EQ(read->entries, entries);
  EXPECT_EQ(read->data_begin, head->size());
  EXPECT_EQ(safetensors_element_bytes("f32"), 0u);
  EXPECT_EQ(safetensors_element_bytes(""), 0u);
}

TEST(SafetensorsFile, DataBeginAtAPage) {
  for (const size_t length : {1, 100, 3900, 3950, 4000, 4096, 9000}) {
    const Metadata metadata = {{"note", std::string(length, 'x')}, {"format", "pt"}};
    const Result<std::string> head = compose_safetensors({{"a", "U8", {1}, 0, 1}}, metadata);
    ASSERT_TRUE(head.ok());
    EXPECT_EQ(head->size() % kHeaderAlign, 0u);
    const Result<SafetensorsHeader> read = parse_safetensors(*head, head->size() + 1);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->metadata, metadata);
    EXPECT_EQ((*head)[8], '{');  // the format demands it
  }
  EXPECT_EQ(compose_safetensors({}, {})->size(), kHeaderAlign);
}

TEST(SafetensorsFile, EveryFileNamesItsCheckpoint) {
  const std::string id = "0123456789abcdef0123456789abcdef";
  const Result<std::string> head = compose_safetensors({}, file_metadata(id));
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->substr(8, 78),
            R"({"__metadata__":{"format":"pt","meron.id":"0123456789abcdef0123456789abcdef"}})");
  EXPECT_EQ(parse_safetensors(*head, head->size())->metadata.at(kIdKey), id);
}

TEST(SafetensorsFile, NamesOfPiecesMayBeLongerThanOnesOfTensors) {
  const std::string name =
      piece_name("residual.4294967295", std::string(512, 'n'), UINT64_MAX - 1, UINT64_MAX, false);
  EXPECT_LE(name.size(), kMaxPieceName);
  EXPECT_TRUE(compose_safetensors({{name, "U8", {1}, 0, 1}}, {}).ok());
  expect_refused(compose_safetensors({{std::string(kMaxPieceName + 1, 'n'), "U8", {1}, 0, 1}}, {}),
                 MERON_E_ARGUMENT, "more than the limit");
}

TEST(SafetensorsFile, ComposesOnlyWhatCanBeRead) {
  const SafetensorsEntry a = {"a", "F32", {2}, 0, 8}, b = {"b", "U8", {2}, 8, 10};
  EXPECT_TRUE(compose_safetensors({a, b}, {}).ok());
  const auto refused = [](const Entries& entries, std::string_view what) {
    expect_refused(compose_safetensors(entries, {}), MERON_E_ARGUMENT, what);
  };
  refused({b}, "there is a hole");
  refused({a, a}, "given twice");
  refused({b, a}, "");
  refused({a, {"b", "U8", {2}, 7, 9}}, "overlap");
  refused({a, {"b", "U8", {3}, 8, 10}}, "its shape needs 3 bytes");
  refused({{"a", "F31", {1}, 0, 4}}, "has dtype \"F31\"");
  refused({{"a", "\"", {1}, 0, 4}}, "");
  refused({{"", "F32", {1}, 0, 4}}, "the name is empty");
  refused({{"a\n", "F32", {1}, 0, 4}}, "control character");
  refused({{"a\xff", "F32", {1}, 0, 4}}, "not valid UTF-8");
  refused({{"__metadata__", "F32", {1}, 0, 4}}, "");
  refused({{"a", "F32", {1u << 31, 1u << 31}, 0, 4}}, "has more than");
  refused({{"a", "U8", {1}, UINT64_MAX - 1, UINT64_MAX}}, "");
  expect_refused(compose_safetensors({}, {{"a", "\xff"}}), MERON_E_ARGUMENT, "UTF-8");
}

TEST(SafetensorsFile, ReadsStrictly) {
  const auto read = [](std::string_view json, uint64_t data) {
    const std::string head = head_of(json);
    return parse_safetensors(head, head.size() + data);
  };
  EXPECT_TRUE(read(R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", 8).ok());
  expect_refused(read(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1),
                 MERON_E_UNSUPPORTED, "has dtype \"F4\"");
  expect_refused(read(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 7),
                 MERON_E_PARSE, "not within the file's 7 bytes");
  expect_refused(read(R"({"__metadata__":{"a":"1","a":"2"}})", 0), MERON_E_PARSE,
                 "the key \"a\" of __metadata__ is given twice");
  expect_refused(read(R"({"__metadata__":{"a":1}})", 0), MERON_E_PARSE, "not only strings");
  expect_refused(parse_safetensors("", 0), MERON_E_PARSE, "too short");
  expect_refused(parse_safetensors(std::string(8, '\xff'), UINT64_MAX), MERON_E_PARSE, "limit");
}

TEST(SafetensorsFile, RandomOnesSurviveTheRoundTrip) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 100; ++i) {
    Entries entries;
    uint64_t at = 0;
    for (size_t n = random() % 40; n > 0; --n) {
      const auto dtypes = safetensors_dtypes();
      const std::string_view dtype = dtypes[random() % dtypes.size()];
      SafetensorsEntry entry{
          std::to_string(n) + "\"\\\xc3\xa9[0:3]", std::string(dtype), {}, at, 0};
      uint64_t bytes = safetensors_element_bytes(dtype);
      for (size_t d = random() % 4; d > 0; --d) {
        entry.shape.push_back(1 + random() % 9);
        bytes *= entry.shape.back();
      }
      entry.end = at += bytes;
      entries.push_back(std::move(entry));
    }
    const Metadata metadata = {{"\x01\n", "\xe2\x82\xac"}};
    const Result<std::string> head = compose_safetensors(entries, metadata);
    ASSERT_TRUE(head.ok()) << head.error().info().what;
    const Result<SafetensorsHeader> read = parse_safetensors(*head, head->size() + at);
    ASSERT_TRUE(read.ok()) << read.error().info().what;
    EXPECT_EQ(read->entries, entries);
    EXPECT_EQ(read->metadata, metadata);
  }
}

}  // namespace
}  // namespace meron::checkpoint
