// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/unit/plan/expect_error.h"
#include "tools/meron/planning/safetensors_model.h"

namespace meron::planning {
namespace {

std::string length_field(uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xFF);
  return out;
}
std::string head(std::string_view json) {
  return length_field(json.size()) + std::string(json);
}

Result<ModelDesc> read(std::string_view json, uint64_t data_bytes) {
  const std::string bytes = head(json);
  return model_from_safetensors(bytes, bytes.size() + data_bytes);
}

TEST(Safetensors, UnitsAreLayers) {
  // In the order of the data, which is not that of the header; 2 * 66 + 4 * 3 + 4 + 0 + 32 bytes.
  const Result<ModelDesc> model = read(R"({
    "__metadata__": {"format": "pt", "note": "{\"dtype\": 1}"},
    "lm_head.weight":                    {"dtype": "F32",  "shape": [3],    "data_offsets": [132, 144]},
    "model.layers.3.mlp.w":              {"dtype": "BF16", "shape": [33],   "data_offsets": [66, 132]},
    "model.layers.3.attn.0.w":           {"shape": [33, 1], "data_offsets": [0, 66], "dtype": "BF16"},
    "scale":                             {"dtype": "F32",  "shape": [],     "data_offsets": [144, 148]},
    "model.layers.10.empty":             {"dtype": "F16",  "shape": [0, 4], "data_offsets": [148, 148]},
    "model.embed_tokens.weight":         {"dtype": "F16",  "shape": [4, 4], "data_offsets": [148, 180]}
  })",
                                       180);
  ASSERT_TRUE(model.ok()) << model.error().info().what;
  EXPECT_EQ(*model, (ModelDesc{{{"model.layers.3", {{DType::bf16, 128, true}}},
                                {"lm_head", {{DType::f32, 32, true}}},
                                {"scale", {{DType::f32, 32, true}}},
                                {"model.layers.10", {{DType::f16, 0, true}}},
                                {"model.embed_tokens", {{DType::f16, 32, true}}}}}));
}

TEST(Safetensors, NamesWithOddDots) {
  const auto unit = [](const std::string& name) {
    const Result<ModelDesc> model =
        read("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
    return model.ok() ? model->units.at(0).name : "error: " + model.error().info().what;
  };
  EXPECT_EQ(unit("0.weight"), "0");
  EXPECT_EQ(unit("0"), "0");
  EXPECT_EQ(unit("h.12"), "h.12");
  EXPECT_EQ(unit("h.1x.w"), "h.1x");
  EXPECT_EQ(unit("."), ".");
  EXPECT_EQ(unit(".w"), ".w");
  EXPECT_EQ(unit("a."), "a");
  EXPECT_EQ(unit("a..3..w"), "a..3");
  EXPECT_EQ(unit("weight"), "weight");
}

TEST(Safetensors, HeaderMayBePaddedAndFileMayHaveNoTensors) {
  EXPECT_EQ(*read("{}", 0), ModelDesc{});
  EXPECT_EQ(*read("{}      ", 0), ModelDesc{});
  EXPECT_EQ(*read(R"({"__metadata__":{}})", 0), ModelDesc{});
  // Bytes of data that follow the header in `head` are not looked at.
  const std::string bytes =
      head(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})") + "abcd";
  EXPECT_TRUE(model_from_safetensors(bytes, bytes.size()).ok());
}

TEST(Safetensors, HeadBytes) {
  EXPECT_EQ(*safetensors_head_bytes(length_field(100), 1000), 108u);
  EXPECT_EQ(*safetensors_head_bytes(length_field(100), 108), 108u);
  EXPECT_EQ(*safetensors_head_bytes(length_field(kMaxSafetensorsHeader), 1 << 30),
            kMaxSafetensorsHeader + 8);
  expect_error(safetensors_head_bytes("1234567", 1000), MERON_E_PARSE, "too short");
  expect_error(safetensors_head_bytes(length_field(1), 7), MERON_E_PARSE, "too short");
  expect_error(safetensors_head_bytes(length_field(101), 108), MERON_E_PARSE,
               "101 bytes, but the file has");
  expect_error(safetensors_head_bytes(length_field(kMaxSafetensorsHeader + 1), UINT64_MAX),
               MERON_E_PARSE, "more than the limit of 100000000");
  expect_error(safetensors_head_bytes(length_field(UINT64_MAX), UINT64_MAX), MERON_E_PARSE,
               "limit");
  expect_error(model_from_safetensors(length_field(100) + "{}", 1000), MERON_E_ARGUMENT,
               "10 bytes were given");
}

struct BadHeader {
  const char* json;
  uint64_t data_bytes;
  const char* what;
  meron_status code = MERON_E_PARSE;
};

TEST(Safetensors, Errors) {
  const BadHeader cases[] = {
      {"", 0, "does not begin with {"},
      {"[]", 0, "does not begin with {"},
      {" {}", 0, "does not begin with {"},
      {"{", 0, "line 1, column 2: malformed JSON: unexpected end of input"},
      {"{} x", 0, "line 1, column 4: malformed JSON"},
      {"{\"a\": {\"dtype\": \"I64\", \"shape\": [1], \"data_offsets\": [0, 8]}}", 8,
       "tensor \"a\" has dtype \"I64\", which Meron does not hold", MERON_E_UNSUPPORTED},
      {"{\"a\": {\"dtype\": \"bf16\", \"shape\": [1], \"data_offsets\": [0, 2]}}", 2,
       "tensor \"a\" has dtype \"bf16\"", MERON_E_UNSUPPORTED},
      {"{\"a\": {\"shape\": [1], \"data_offsets\": [0, 4]}}", 4,
       "tensor \"a\": dtype, shape or data_offsets is missing"},
      {"{\"a\": {}}", 0, "tensor \"a\": dtype, shape or data_offsets is missing"},
      {"{\"a\": 3}", 0, "tensor \"a\": a number where an object was expected"},
      {"{\"a\": []}", 0, "tensor \"a\": an array where an object was expected"},
      {"{\"a\": \"F32\"}", 0, "tensor \"a\": a string where an object was expected"},
      {"{\"a\": {\"dtype\": 3}}", 0, "tensor \"a\": dtype is a number"},
      {"{\"a\": {\"dtype\": [\"F32\"]}}", 0, "tensor \"a\": dtype is an array"},
      {"{\"a\": {\"shape\": \"x\"}}", 0, "tensor \"a\": shape is a string"},
      {"{\"a\": {\"shape\": {}}}", 0, "tensor \"a\": shape is an object"},
      {"{\"a\": {\"data_offsets\": null}}", 0, "tensor \"a\": data_offsets is null"},
      {"{\"a\": {\"shape\": [-1]}}", 0,
       "tensor \"a\": a negative number where a size was expected"},
      {"{\"a\": {\"shape\": [1.0]}}", 0, "where a size was expected"},
      {"{\"a\": {\"shape\": [[1]]}}", 0, "tensor \"a\": an array where a size was expected"},
      {"{\"a\": {\"shape\": [true]}}", 0, "where a size was expected"},
      {"{\"a\": {\"shape\": [18446744073709551616]}}", 0, "where a size was expected"},
      {"{\"a\": {\"shape\": [4294967296, 4294967296]}}", 0,
       "tensor \"a\": the shape has more than"},
      {"{\"a\": {\"shape\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}", 0,
       "tensor \"a\": the shape has 17"},
      {"{\"a\": {\"data_offsets\": [0]}}", 0, "data_offsets has not two numbers"},
      {"{\"a\": {\"data_offsets\": [0, 1, 2]}}", 0, "data_offsets has more than two numbers"},
      {"{\"a\": {\"extra\": 1}}", 0, "tensor \"a\": unknown key \"extra\""},
      {"{\"a\": {\"dtype\": \"F32\", \"dtype\": \"F32\"}}", 0,
       "tensor \"a\": dtype is given twice"},
      {"{\"a\": {\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": [0, 4]}, \"a\": {}}", 4,
       "the key \"a\" is given twice"},
      {"{\"\": {}}", 0, "tensor \"\": the name is empty"},
      {"{\"a\\u0000\": {}}", 0, "the name has a control character"},
      {"{\"__metadata__\": {\"a\": 3}}", 0, "__metadata__ holds a number, not only strings"},
      {"{\"__metadata__\": {\"a\": {}}}", 0, "__metadata__ holds an object, not only strings"},
      {"{\"__metadata__\": {\"a\": []}}", 0, "__metadata__ holds an array, not only strings"},
      {"{\"__metadata__\": \"x\"}", 0, "a string where an object was expected"},
      {"{\"__metadata__\": {}, \"__metadata__\": {}}", 0, "given twice"},
      // Offsets.
      {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 0]}}", 4,
       "tensor \"a\": bytes 4 to 0 are not within"},
      {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 3,
       "tensor \"a\": bytes 0 to 4 are not within the file's 3 bytes of data"},
      {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 5,
       "the tensors fill 4 of the file's 5 bytes of data"},
      {"{}", 1, "the tensors fill 0 of the file's 1 bytes of data"},
      {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 4]}}", 4,
       "tensor \"a\": its shape needs 8 bytes, its data_offsets give 4"},
      {"{\"a\": {\"dtype\": \"F16\", \"shape\": [1], \"data_offsets\": [1, 3]}}", 3,
       "tensor \"a\" begins at byte 1 of the data, where byte 0 was expected: there is a hole"},
      {"{\"a\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [0, 4]},"
       "\"b\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [2, 6]}}",
       6, "tensor \"b\" begins at byte 2 of the data, where byte 4 was expected: tensors overlap"},
      {"{\"a\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [0, 4]},"
       "\"b\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [0, 4]}}",
       4, "tensors overlap"},
      {"{\"a\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [0, 4]},"
       "\"b\": {\"dtype\": \"F16\", \"shape\": [0], \"data_offsets\": [2, 2]}}",
       4, "tensors overlap"},
      {"{\"a\": {\"dtype\": \"F16\", \"shape\": [2], \"data_offsets\": [0, 18446744073709551615]}}",
       4, "are not within"},
  };
  for (const BadHeader& bad : cases) {
    SCOPED_TRACE(bad.json);
    const Result<ModelDesc> model = read(bad.json, bad.data_bytes);
    expect_error(model, bad.code, bad.what);
    if (!model) {
      EXPECT_EQ(model.error().info().subject, "safetensors header");
    }
  }
}

TEST(Safetensors, DeepNestingEndsAtTheFirstWrongBracket) {
  expect_error(read("{\"a\": " + std::string(1'000'000, '['), 0), MERON_E_PARSE, "an array where");
}

}  // namespace
}  // namespace meron::planning
