// SPDX-License-Identifier: Apache-2.0
#include "plan/model_desc.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace meron {
namespace {

TEST(ModelFromSize, SplitsEvenlyAndPads) {
  const Result<ModelDesc> model = model_from_size(1003, 3, DType::bf16);  // 251, 251, 251, 250
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(model->units.size(), 4u);
  EXPECT_EQ(model->units[0].name, "layers.0");
  EXPECT_EQ(model->units[2].name, "layers.2");
  EXPECT_EQ(model->units[3].name, "rest");
  for (const UnitDesc& unit : model->units) {
    EXPECT_EQ(unit.flats, (std::vector<FlatDesc>{{DType::bf16, 256, true}}));
  }
}

TEST(ModelFromSize, NoElementIsLost) {
  for (const uint64_t parameters : {0ull, 1ull, 7ull, 1000ull, 123456789ull, 7000000000ull}) {
    for (const uint32_t layers : {0u, 1u, 5u, 33u}) {
      const Result<ModelDesc> model = model_from_size(parameters, layers, DType::f32);
      ASSERT_TRUE(model.ok());
      ASSERT_EQ(model->units.size(), layers + 1);
      uint64_t elements = 0, least = UINT64_MAX, most = 0;
      for (const UnitDesc& unit : model->units) {
        ASSERT_EQ(unit.flats.size(), 1u);
        EXPECT_EQ(unit.flats[0].elements % kTensorAlign, 0u);
        elements += unit.flats[0].elements;
        least = std::min(least, unit.flats[0].elements);
        most = std::max(most, unit.flats[0].elements);
      }
      EXPECT_GE(elements, parameters);
      EXPECT_LT(elements, parameters + kTensorAlign * (layers + 1));
      EXPECT_LE(most - least, kTensorAlign);
    }
  }
}

TEST(ModelFromSize, Limits) {
  EXPECT_TRUE(model_from_size(kMaxElements, 0, DType::f32).ok());
  expect_error(model_from_size(kMaxElements + 1, 0, DType::f32), MERON_E_ARGUMENT,
               "more than the limits");
  expect_error(model_from_size(1, kMaxLayers + 1, DType::f32), MERON_E_ARGUMENT, "100001 layers");
}

TEST(ParseModel, BySize) {
  EXPECT_EQ(*parse_model(R"({"parameters": 7e9, "layers": 32, "dtype": "bf16"})"),
            *model_from_size(7'000'000'000, 32, DType::bf16));
  EXPECT_EQ(*parse_model(R"({"dtype": "f32", "layers": 0, "parameters": 10})"),
            *model_from_size(10, 0, DType::f32));
}

TEST(ParseModel, ByUnits) {
  const Result<ModelDesc> model = parse_model(R"({"units": [
    {"name": "embed", "tensors": [{"name": "embed.w", "shape": [100, 8], "dtype": "bf16", "trainable": false}]},
    {"name": "none", "tensors": []},
    {"tensors": [
      {"name": "w", "shape": [33], "dtype": "f32"},
      {"name": "b", "shape": [], "dtype": "f32", "trainable": true},
      {"name": "e", "shape": [0], "dtype": "f16"}], "name": "block"}]})");
  ASSERT_TRUE(model.ok()) << model.error().info().what;
  EXPECT_EQ(*model, (ModelDesc{{{"embed", {{DType::bf16, 800, false}}},
                                {"none", {}},
                                {"block", {{DType::f32, 96, true}, {DType::f16, 0, true}}}}}));
  EXPECT_EQ(*parse_model(R"({"units": []})"), ModelDesc{});
}

TEST(ModelJson, RoundTrip) {
  const std::string longest(kMaxNameBytes, 'x');
  const ModelDesc models[] = {
      {},
      *model_from_size(1003, 3, DType::bf16),
      {{{"empty", {}}, {"nothing", {{DType::f32, 0, true}}}}},
      {{{longest, {{DType::bf16, 64, true}, {DType::f32, 32, false}, {DType::f32, 96, true}}},
        {"unit0.flat0", {{DType::f16, kMaxElements, false}}}}},
  };
  for (const ModelDesc& model : models) {
    for (const int indent : {-1, 2}) {
      const Result<ModelDesc> read = parse_model(to_json(model, indent));
      ASSERT_TRUE(read.ok()) << read.error().info().what;
      EXPECT_EQ(*read, model);
    }
  }
}

struct BadModel {
  const char* text;
  const char* what;
  const char* advice = "";
};

TEST(ParseModel, ErrorsNameLineAndKey) {
  const BadModel cases[] = {
      {"", "line 1, column 1: malformed JSON"},
      {"{}", "line 1: neither \"units\" nor \"parameters\" is given"},
      {"[]", "line 1: must be an object, not an array"},
      {"{\"layers\": 3}", "neither \"units\" nor"},
      {"{\"parametres\": 3}", "key \"parametres\": unknown key", "did you mean \"parameters\"?"},
      {"{\"parameters\": 3, \"units\": []}", "key \"parameters\": unknown key"},
      {"{\"parameters\": 3,\n\"layer\": 3}", "line 2, key \"layer\": unknown key",
       "did you mean \"layers\"?"},
      {"{\"parameters\": 3}", "line 1: the key \"layers\" is missing", "add \"layers\""},
      {"{\"parameters\": 3, \"layers\": 1}", "the key \"dtype\" is missing"},
      {"{\"parameters\": 3, \"layers\": 1,\n \"dtype\": \"f64\"}",
       "line 2, key \"dtype\": \"f64\" is not", "known dtypes: \"f32\", \"bf16\", \"f16\""},
      {"{\"parameters\": 1e15, \"layers\": 1, \"dtype\": \"f32\"}",
       "key \"parameters\": must be a whole"},
      {"{\"parameters\": 1.5, \"layers\": 1, \"dtype\": \"f32\"}", "not 1.5"},
      {"{\"parameters\": 3, \"layers\": 100001, \"dtype\": \"f32\"}",
       "from 0 to 100000, not 100001"},
      {"{\"units\": {}}", "key \"units\": must be an array, not an object"},
      {"{\"units\": [3]}", "key \"units[0]\": must be an object"},
      {"{\"units\": [{\"tensors\": []}]}", "key \"units[0]\": the key \"name\" is missing"},
      {"{\"units\": [{\"name\": \"a\"}]}", "key \"units[0]\": the key \"tensors\" is missing"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": []},\n{\"name\": \"a\", \"tensors\": []}]}",
       "line 2, key \"units[1].name\": another unit is called \"a\" too"},
      {"{\"units\": [{\"name\": \"\", \"tensors\": []}]}",
       "key \"units[0].name\": the name is empty"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [\n{\"name\": \"t\", \"shape\": [2,\n-3], "
       "\"dtype\": "
       "\"f32\"}]}]}",
       "line 3, key \"units[0].tensors[0].shape[1]\": must be a whole number"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [{\"name\": \"t\", \"shape\": "
       "[16777216,16777216,2], \"dtype\": \"f32\"}]}]}",
       "key \"units[0].tensors[0].shape\": the shape has more than"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [{\"name\": \"t\", \"shape\": "
       "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], \"dtype\": \"f32\"}]}]}",
       "the shape has 17 dimensions"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [{\"name\": \"t\", \"shape\": "
       "[281474976710656], "
       "\"dtype\": \"f32\"}, {\"name\": \"s\", \"shape\": [1], \"dtype\": \"f32\"}]}]}",
       "key \"units[0].tensors\": the unit has more than"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [{\"name\": \"t\", \"shape\": 3, \"dtype\": "
       "\"f32\"}]}]}",
       "key \"units[0].tensors[0].shape\": must be an array, not a number"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [{\"name\": \"t\", \"shape\": [3]}]}]}",
       "key \"units[0].tensors[0]\": the key \"dtype\" is missing"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [{\"name\": \"t\", \"shape\": [], \"dtype\": "
       "\"f32\", "
       "\"trainable\": 1}]}]}",
       "trainable\": must be true or false, not a number"},
      {"{\"units\": [{\"name\": \"a\", \"tensors\": [{\"name\": \"t\", \"shape\": [], \"dtype\": "
       "\"f32\"}]},"
       "{\"name\": \"b\", \"tensors\": [{\"name\": \"t\", \"shape\": [], \"dtype\": \"f32\"}]}]}",
       "key \"units[1].tensors[0].name\": another tensor is called \"t\" too"},
  };
  for (const BadModel& bad : cases) {
    SCOPED_TRACE(bad.text);
    const Result<ModelDesc> model = parse_model(bad.text);
    expect_error(model, MERON_E_PARSE, bad.what, bad.advice);
    if (!model) {
      EXPECT_EQ(model.error().info().subject, "model");
    }
  }
}

TEST(ParseModel, NamesTheCommandThatReadsAConfigOfHuggingFace) {
  expect_error(parse_model(R"({"model_type": "llama", "hidden_size": 64})"), MERON_E_PARSE,
               "key \"model_type\": the text is the config.json", "meron plan --model");
}

TEST(ParseModel, TakesTheNamesThatPyTorchHas) {
  const auto dtype_of = [](std::string_view name) {
    const std::string text =
        R"({"parameters": 64, "layers": 0, "dtype": ")" + std::string(name) + "\"}";
    const Result<ModelDesc> model = parse_model(text);
    EXPECT_TRUE(model.ok()) << text;
    return model->units.at(0).flats.at(0).dtype;
  };
  for (const char* name : {"f32", "fp32", "float32", "float"})
    EXPECT_EQ(dtype_of(name), DType::f32);
  for (const char* name : {"bf16", "bfloat16"}) EXPECT_EQ(dtype_of(name), DType::bf16);
  for (const char* name : {"f16", "fp16", "float16", "half"}) EXPECT_EQ(dtype_of(name), DType::f16);
}

}  // namespace
}  // namespace meron
