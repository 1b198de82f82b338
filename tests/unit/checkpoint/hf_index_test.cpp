// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_index.h"

#include <gtest/gtest.h>

#include "some_manifest.h"

namespace meron::checkpoint {
namespace {

TEST(HfIndex, AsTransformersWritesIt) {
  const Result<HfIndex> index = parse_hf_index(R"({
    "metadata": {"total_parameters": 7, "total_size": 28},
    "weight_map": {
      "lm_head.weight": "model-00002-of-00002.safetensors",
      "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
      "model.norm.weight": "model-00002-of-00002.safetensors"
    }
  })");
  ASSERT_TRUE(index.ok()) << index.error().info().what;
  EXPECT_EQ(
      *index,
      (HfIndex{
          28,
          {"model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"},
          {{"lm_head.weight", 0}, {"model.embed_tokens.weight", 1}, {"model.norm.weight", 0}}}));
  const Result<HfIndex> again = parse_hf_index(to_json(*index));
  ASSERT_TRUE(again.ok()) << again.error().info().what;
  EXPECT_EQ(*again, *index);
}

TEST(HfIndex, EmptyAndWithoutMetadata) {
  EXPECT_EQ(*parse_hf_index(R"({"weight_map": {}})"), HfIndex{});
  EXPECT_EQ(*parse_hf_index(to_json(HfIndex{})), HfIndex{});
}

// Values of other programs are only hints.
TEST(HfIndex, ATotalThatIsNoNumberIsLeftAside) {
  const auto index =
      parse_hf_index(R"({"weight_map": {"a": "m.safetensors"}, "metadata": {"total_size": "28"}})");
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->total_bytes, 0u);
}

TEST(HfIndex, Errors) {
  const struct {
    const char* text;
    meron_status code;
    const char* what;
  } cases[] = {
      {"", MERON_E_PARSE, "malformed JSON"},
      {"[]", MERON_E_PARSE, "must be an object"},
      {"{}", MERON_E_PARSE, "\"weight_map\" is missing"},
      {R"({"weight_map": []})", MERON_E_PARSE, "key \"weight_map\": must be an object"},
      {R"({"weight_map": {"a": 1}})", MERON_E_PARSE, "key \"weight_map.a\": must be a string"},
      {R"({"weight_map": {"a": "../a.safetensors"}})", MERON_E_CORRUPT,
       "line 1, key \"weight_map.a\": the file name \"../a.safetensors\" has a slash"},
      {R"({"weight_map": {"a": "/a.safetensors"}})", MERON_E_CORRUPT, "has a slash"},
      {R"({"weight_map": {"a": "b/a.safetensors"}})", MERON_E_CORRUPT, "has a slash"},
      {R"({"weight_map": {"a": ".a.safetensors"}})", MERON_E_CORRUPT, "begins with a dot"},
      {R"({"weight_map": {"a": ""}})", MERON_E_CORRUPT, "is empty"},
      {R"({"weight_map": {"a": "a\u0000.safetensors"}})", MERON_E_CORRUPT, "not printable"},
      {R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}})", MERON_E_CORRUPT,
       "is no safetensors file"},
      {R"({"weight_map": {"": "a.safetensors"}})", MERON_E_PARSE, "the name is empty"},
      {R"({"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}})", MERON_E_PARSE,
       "already given"},
      {R"({"weight_map": {}, "metadata": [[[[[[[[1]]]]]]]]})", MERON_E_PARSE, "nested more than"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.text);
    expect_refused(parse_hf_index(bad.text), bad.code, bad.what);
  }
  const std::string long_name(513, 'n');
  expect_refused(parse_hf_index("{\"weight_map\": {\"" + long_name + "\": \"a.safetensors\"}}"),
                 MERON_E_PARSE, "more than the limit of 512");
}

}  // namespace
}  // namespace meron::checkpoint
