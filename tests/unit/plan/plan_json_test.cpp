// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "expect_error.h"

namespace meron {
namespace {

Plan random_plan(std::mt19937& random) {
  const auto pick = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  const auto sharding = [&] { return static_cast<Sharding>(pick(3)); };
  const auto codec = [&] {
    return Codec{.kind = static_cast<CodecKind>(pick(4)),
                 .block = 64u << pick(6),
                 .stochastic = pick(2) == 1,
                 .hadamard = pick(2) == 1,
                 .feedback = pick(2) == 1,
                 .feedback_beta = pick(2) * 0.3,
                 .feedback_reset = static_cast<uint32_t>(pick(2) * 7),
                 .difference = pick(2) == 1,
                 .error_limit = pick(2) * 0.1};
  };
  Plan plan;
  do {
    plan = {};
    plan.optimizer.sharding = sharding();
    plan.gradient.sharding = sharding();
    plan.param.sharding = sharding();
    const uint32_t sizes[] = {Mesh::kAll, Mesh::kNode, 1, 65536};
    plan.mesh.shard = sizes[pick(4)];
    plan.param.secondary_partition = pick(2) == 1;
    plan.param.frozen_int8 = pick(2) == 1;
    if (pick(2) == 1) plan.param.codec = codec();
    if (pick(2) == 1) plan.gradient.codec = codec();
    plan.optimizer.dtype = static_cast<StateDType>(pick(3));
    const int on_nvme = pick(4);  // bits: optimizer, parameters
    if (on_nvme != 0) {
      plan.nvme = {.path = pick(2) == 1 ? "/a \"drive\"" : "x",
                   .block = 4096u << pick(5),
                   .depth = 1 + static_cast<uint32_t>(pick(100)),
                   .threads = 1 + static_cast<uint32_t>(pick(8))};
      if (pick(2) == 1) plan.nvme.rates = {.read = 7, .write = 6, .both = 5, .update = 4};
    }
    if ((on_nvme & 1) != 0) {
      plan.optimizer.tier = Tier::nvme;
      plan.optimizer.fraction = 1.0 / (1 + pick(7));
      plan.optimizer.sub_group = kLeastSubGroup << pick(10);
      plan.optimizer.buffers = kLeastStateBuffers + static_cast<uint32_t>(pick(9));
    }
    if ((on_nvme & 2) == 0 && pick(2) == 1) {
      plan.param.tier = Tier::device;
      plan.param.gather_window = static_cast<uint64_t>(pick(3)) << 30;
      plan.param.register_values = pick(2) == 1;
    }
    if ((on_nvme & 2) != 0) {
      plan.param.tier = Tier::nvme;
      plan.param.resident = pick(2) * 123'456;
      plan.param.buffers = kLeastParamBuffers + static_cast<uint32_t>(pick(9));
    }
  } while (!validate(plan));
  if (const int dtype = pick(4); dtype < 3) plan.gradient.dtype = static_cast<DType>(dtype);
  plan.gradient.rounds = !plan.gradient.dtype && !is_sharded(plan.gradient) && pick(2) == 1;
  plan.gradient.buckets = 1 + random() % kMaxGradientBuckets;
  constexpr std::string_view kNames[] = {"zero2", "custom",       "a \"quoted\" \\ name",
                                         "µ/形",  "with.dots[3]", "\xF0\x9F\x90\x99"};
  plan.name = kNames[pick(6)];
  return plan;
}

TEST(PlanJson, RoundTrip) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const Plan plan = random_plan(random);
    ASSERT_TRUE(validate(plan).ok());
    for (const int indent : {-1, 0, 2, 7}) {
      const std::string text = to_json(plan, indent);
      const Result<Plan> read = parse_plan(text);
      ASSERT_TRUE(read.ok()) << read.error().info().what << '\n' << text;
      ASSERT_EQ(*read, plan) << text;
      ASSERT_EQ(to_json(*read, indent), text);
    }
  }
}

TEST(PlanJson, TextOfAPreset) {
  EXPECT_EQ(to_json(*preset("zero2"), -1),
            R"({"name":"zero2",)"
            R"("mesh":{"shard":"all"},)"
            R"("param":{"sharding":"none","tier":"host","dtype":"registered",)"
            R"("frozen":"registered","secondary_partition":"none","codec":"none"},)"
            R"("gradient":{"sharding":"shard","tier":"host","dtype":"auto","codec":"none"},)"
            R"("optimizer":{"sharding":"shard","tier":"host","dtype":"f32"},)"
            R"("gradient_buckets":2})");
}

TEST(PlanJson, TakesTheNamesThatPyTorchHas) {
  const Result<Plan> plan =
      parse_plan(R"({"gradient": {"dtype": "bfloat16"}, "optimizer": {"dtype": "float32"}})");
  ASSERT_TRUE(plan.ok()) << plan.error().info().what;
  EXPECT_EQ(plan->gradient.dtype, DType::bf16);
  EXPECT_EQ(plan->optimizer.dtype, StateDType::f32);
  EXPECT_EQ(parse_plan(R"({"gradient": {"dtype": "fp16"}})")->gradient.dtype, DType::f16);
}

TEST(PlanJson, ParamAsTheDTypeOfGradientsKeepsTheirBits) {
  const Result<Plan> rounds = parse_plan(R"({"preset": "zero1", "gradient": {"dtype": "param"}})");
  ASSERT_TRUE(rounds.ok());
  EXPECT_TRUE(rounds->gradient.rounds);
  EXPECT_EQ(rounds->name, "custom");
  EXPECT_EQ(parse_plan(to_json(*rounds)).value(), *rounds);
  EXPECT_EQ(parse_plan(R"({"preset": "zero1", "gradient": {"dtype": "auto"}})").value(),
            *preset("zero1"));
  // Sharded gradients are summed in f32 by either word.
  EXPECT_EQ(parse_plan(R"({"preset": "zero2", "gradient": {"dtype": "param"}})").value(),
            *preset("zero2"));
}

TEST(PlanJson, StartsFromAPresetWhereverItIsWritten) {
  for (const char* text : {R"({"preset": "zero2", "gradient": {"dtype": "f32"}})",
                           R"({"gradient": {"dtype": "f32"}, "preset": "zero2"})"}) {
    const Result<Plan> plan = parse_plan(text);
    ASSERT_TRUE(plan.ok()) << plan.error().info().what;
    Plan expected = *preset("zero2");
    expected.name = "custom";
    expected.gradient.dtype = DType::f32;
    EXPECT_EQ(*plan, expected);
  }
}

TEST(PlanJson, NamedAfterThePresetThatItEquals) {
  const auto name = [](std::string_view text) { return parse_plan(text)->name; };
  EXPECT_EQ(name("{}"), "zero0");
  EXPECT_EQ(name(R"({"preset": "zero3"})"), "zero3");
  EXPECT_EQ(name(R"({"preset": "zero3", "param": {"sharding": "none"}})"), "zero2");
  EXPECT_EQ(name(R"({"preset": "zero3", "gradient_buckets": 3})"), "custom");
  EXPECT_EQ(name(R"({"preset": "zero3", "name": "mine"})"), "mine");
  EXPECT_EQ(name("{\"optimizer\": {\"sharding\": \"shard\"}}"), "zero1");
}

TEST(PlanJson, ParametersMayBeShardedWithWholeGradients) {
  const Result<Plan> plan = parse_plan(R"({"preset": "zero1", "param": {"sharding": "shard"}})");
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(is_sharded(plan->gradient));
}

struct BadPlan {
  const char* text;
  meron_status code;
  const char* what;
  const char* advice;
};

TEST(PlanJson, ErrorsNameLineAndKey) {
  const BadPlan cases[] = {
      // Not JSON at all.
      {"", MERON_E_PARSE, "line 1, column 1: malformed JSON: unexpected end of input", ""},
      {"{\n  \"name\": \"x\"", MERON_E_PARSE, "line 2, column 14: malformed JSON: unexpected end",
       ""},
      {"{\"name\": \"x\",\n}", MERON_E_PARSE, "line 2, column 1: malformed JSON: unexpected '}'",
       ""},
      {"{\"name\"\n  \"x\"}", MERON_E_PARSE, "line 2, column 3: malformed JSON: unexpected string",
       ""},
      {"{\"name\" 123}", MERON_E_PARSE, "line 1, column 9: malformed JSON: unexpected number", ""},
      {"{\"name\": nul}", MERON_E_PARSE, "line 1, column 13: malformed JSON: invalid literal", ""},
      {"{\"µ\": x}", MERON_E_PARSE, "line 1, column 7: malformed JSON: invalid literal", ""},
      {"{} {}", MERON_E_PARSE, "line 1, column 4: malformed JSON: unexpected '{'", ""},
      {"{\"name\": \"a\nb\"}", MERON_E_PARSE, "line 1, column 12: malformed JSON: invalid string",
       ""},
      {"{\"name\": \"\xff\"}", MERON_E_PARSE, "line 1, column 11: malformed JSON: invalid string",
       ""},
      {"{\"name\": 1e999}", MERON_E_PARSE, "line 1, column 10: malformed JSON: number overflow",
       ""},
      {"/* */ {}", MERON_E_PARSE, "line 1, column 1: malformed JSON", ""},
      // Keys.
      {"{\n\"optimiser\":\n{}}", MERON_E_PARSE, "line 2, key \"optimiser\": unknown key",
       "did you mean \"optimizer\"? Known keys: \"preset\""},
      {"{\"param\": {\n\"dtpye\": \"f32\"}}", MERON_E_PARSE,
       "line 2, key \"param.dtpye\": unknown key", "did you mean \"dtype\"?"},
      {"{\"wholly_other\": 1}", MERON_E_PARSE, "line 1, key \"wholly_other\"", "known keys"},
      {"{\"optimizer\": {\"codec\": \"none\"}}", MERON_E_PARSE,
       "key \"optimizer.codec\": unknown key", ""},
      {"{\"name\": \"a\",\n\"param\": {},\n\n\"name\":\n\"b\"}", MERON_E_PARSE,
       "line 4, key \"name\": this key was already given in line 1", "leave one"},
      {"{\"param\": {\"tier\": \"host\",\n\"tier\": \"host\"}}", MERON_E_PARSE,
       "line 2, key \"param.tier\": this key was already given in line 1", ""},
      {"{\"n\\u0061me\": \"a\", \"name\": \"b\"}", MERON_E_PARSE,
       "key \"name\": this key was already", ""},
      // Types.
      {"[]", MERON_E_PARSE, "line 1: must be an object, not an array", ""},
      {"\n\n3\n", MERON_E_PARSE, "line 3: must be an object, not a number", ""},
      {"{\"param\":\nnull}", MERON_E_PARSE, "line 2, key \"param\": must be an object, not null",
       ""},
      {"{\"param\": {\"sharding\": 3\n}}", MERON_E_PARSE,
       "line 1, key \"param.sharding\": must be a string, not a number", ""},
      {"{\"gradient\": {\"dtype\": true}}", MERON_E_PARSE, "must be a string, not true or false",
       ""},
      {"{\"gradient_buckets\": \"2\"}", MERON_E_PARSE, "must be a whole number, not a string", ""},
      {"{\"gradient_buckets\": 0}", MERON_E_PARSE, "must be a whole number from 1 to 64, not 0",
       ""},
      {"{\"gradient_buckets\":\n65}", MERON_E_PARSE, "line 2, key \"gradient_buckets\": must be",
       ""},
      {"{\"gradient_buckets\": -1}", MERON_E_PARSE, "from 1 to 64, not -1", ""},
      {"{\"gradient_buckets\": 2.5}", MERON_E_PARSE, "from 1 to 64, not 2.5", ""},
      {"{\"gradient_buckets\": 18446744073709551616}", MERON_E_PARSE, "from 1 to 64, not 1.8", ""},
      {"{\"name\": \"\"}", MERON_E_PARSE, "line 1, key \"name\": the name is empty", ""},
      {"{\"name\": \"a\\u0000\"}", MERON_E_PARSE, "the name has a control character", ""},
      // Words.
      {"{\"preset\":\n\"zero4\"}", MERON_E_PARSE,
       "line 2, key \"preset\": \"zero4\" is not the name", "did you mean \"zero3\"?"},
      {"{\"gradient\": {\n\n\"dtype\": \"bf17\"}}", MERON_E_PARSE,
       "line 3, key \"gradient.dtype\": \"bf17\" is not a dtype",
       "did you mean \"bf16\"? Known values: \"auto\", \"param\", \"f32\", \"bf16\", \"f16\""},
      {"{\"param\": {\"sharding\": \"shards\"}}", MERON_E_PARSE, "\"shards\" is not a sharding",
       "did you mean \"shard\"?"},
      // Sound words that do not go together, or that are not offered.
      {"{\"param\": {\"tier\": \"device\"}}", MERON_E_PARSE,
       "line 1, key \"param.tier\": parameters on tier device are not sharded", "zero3"},
      {"{\"optimizer\": {\"tier\": \"nvme\"}}", MERON_E_PARSE,
       "line 1, key \"optimizer.tier\": an entry has tier nvme, and the plan names no folder",
       "path"},
      {"{\"optimizer\": {\"buffers\": 1}}", MERON_E_PARSE, "key \"optimizer.buffers\"", ""},
      {"{\"optimizer\": {\"sharding\": \"none\", \"fraction\": 0.5}}", MERON_E_PARSE,
       "key \"optimizer.fraction\": fraction, sub_group and buffers need", "leave them out"},
      {"{\"nvme\": {\"path\": \"/local\"}}", MERON_E_PARSE, "key \"nvme\": the plan describes tier",
       ""},
      {"{\"optimizer\": {\"fraction\": -1}}", MERON_E_PARSE, "fraction", ""},
      {"{\"optimizer\": {\"tier\": \"nvme\", \"fraction\": \"auto\"}, \"nvme\": {\"path\": \"x\"}}",
       MERON_E_PARSE, "key \"optimizer.fraction\": fraction is \"auto\"", "io-bench"},
      {"{\"nvme\": {\"path\": \"x\", \"rates\": {\"read\": 1}}}", MERON_E_PARSE, "write", ""},
      {"{\"param\": {\"gather_window\": \"2 GiBs\"}}", MERON_E_PARSE,
       "line 1, key \"param.gather_window\": \"GiBs\" is not a unit", "GiB"},
      {"{\"param\": {\"gather_window\": -1}}", MERON_E_PARSE, "\"param.gather_window\"", ""},
      {"{\"param\": {\"gather_window\": \"2 GiB\"}}", MERON_E_PARSE,
       "\"param.gather_window\": gather_window and register_values need parameters on tier device",
       "set their tier"},
      {"{\"param\": {\"register_values\": true}}", MERON_E_PARSE, "\"param.register_values\"", ""},
      {"{\"param\": {\"register_values\": 1}}", MERON_E_PARSE, "\"param.register_values\"", ""},
      {"{\"nvme\": {\"block_size\": 1}}", MERON_E_PARSE, "\"nvme.block_size\": unknown key", ""},
      {"{\"optimizer\": {\"tier\": \"device\"}}", MERON_E_PARSE,
       "key \"optimizer.tier\": one of gradient and optimizer has tier device", "both"},
      {"{\"param\": {\"sharding\": \"node x local\"}}", MERON_E_UNSUPPORTED,
       "sharding \"node x local\" is not offered", "\"replica x shard\""},
      {"{\"param\": {\"dtype\": \"bf16\"}}", MERON_E_UNSUPPORTED, "dtype \"bf16\" is not",
       "\"registered\""},
      {"{\"optimizer\": {\"dtype\": \"f16\"}}", MERON_E_UNSUPPORTED, "dtype \"f16\" is not",
       "\"f32\""},
      {"{\"gradient\": {\"dtype\": \"int8\"}}", MERON_E_UNSUPPORTED, "dtype \"int8\" is not", ""},
      // Contradictions between rows.
      {"{\"preset\": \"zero2\",\n\"optimizer\": {\"sharding\": \"none\"}}", MERON_E_PARSE,
       "line 2, key \"optimizer.sharding\": gradients are sharded but the optimizer is not",
       "shard the optimizer too"},
      {"{\"param\":\n {\"sharding\":\n \"shard\"}}", MERON_E_PARSE,
       "line 3, key \"param.sharding\": parameters are sharded but the optimizer is not", ""},
  };
  for (const BadPlan& bad : cases) {
    SCOPED_TRACE(bad.text);
    const Result<Plan> plan = parse_plan(bad.text);
    expect_error(plan, bad.code, bad.what, bad.advice);
    if (!plan) {
      EXPECT_EQ(plan.error().info().subject, "plan");
    }
  }
}

TEST(PlanJson, LineIsThatOfTheValueHoweverTheTextIsBroken) {
  for (const char* newline : {"\n", "\r\n", " \n\t"}) {
    for (int lines = 0; lines < 40; ++lines) {
      std::string gap;
      for (int i = 0; i < lines; ++i) gap += newline;
      // A number ends only where the next character is seen: before, behind and at a line break.
      for (const char* behind : {"}", " }", "\n}", ",\n\"name\": \"x\"}"}) {
        const std::string text = "{" + gap + "\"gradient_buckets\": 99" + behind;
        expect_error(parse_plan(text), MERON_E_PARSE,
                     fmt::format("line {}, key \"gradient_buckets\": must be", lines + 1));
      }
    }
  }
}

TEST(PlanJson, SizeAndDepthAreBounded) {
  std::string text = "{}";
  text.resize(kMaxPlanText, ' ');
  EXPECT_TRUE(parse_plan(text).ok());
  text += ' ';
  expect_error(parse_plan(text), MERON_E_PARSE, "more than the limit of 1048576");

  const auto nested = [](int depth) {
    return "{\"name\": " + std::string(static_cast<size_t>(depth - 1), '[') +
           std::string(static_cast<size_t>(depth - 1), ']') + "}";
  };
  expect_error(parse_plan(nested(8)), MERON_E_PARSE, "key \"name\": must be a string");
  expect_error(parse_plan(nested(9)), MERON_E_PARSE, "nested more than 8 deep");
  expect_error(parse_plan(nested(500'000)), MERON_E_PARSE, "nested more than 8 deep");
}

TEST(PlanJson, MessagesStayShortAndValid) {
  const std::string bytes(100'000, 'k');
  const Result<Plan> long_key = parse_plan("{\"" + bytes + "\": 1}");
  ASSERT_FALSE(long_key.ok());
  EXPECT_LT(long_key.error().info().what.size(), 200u);
  const Result<Plan> long_word = parse_plan("{\"preset\": \"" + bytes + "\"}");
  ASSERT_FALSE(long_word.ok());
  EXPECT_LT(long_word.error().info().what.size(), 300u);
  const Result<Plan> long_literal = parse_plan("{\"preset\": \"" + bytes);
  ASSERT_FALSE(long_literal.ok());
  EXPECT_LT(long_literal.error().info().what.size(), 300u);
}

TEST(PlanJson, ManyKeysAreReadInReasonableTime) {
  std::string text = "{";
  for (int i = 0; i < 60'000; ++i) text += fmt::format("\"k{}\":1,", i);
  text += "\"k7\":1}";
  expect_error(parse_plan(text), MERON_E_PARSE, "key \"k7\": this key was already given in line 1");
}

// As much as the drive moves while the host updates all: 6e9 bytes a second each way take 0.5e9
// elements with 12 bytes, or 0.96e9 with 6.23.
TEST(PlanJson, AFractionIsChosenByRates) {
  const auto fraction = [](const char* dtype, const char* update) {
    const std::string text =
        std::string(R"({"preset": "zero3", "optimizer": {"tier": "nvme", "fraction": "auto", )") +
        R"("dtype": ")" + dtype + R"("}, "nvme": {"path": "x", "rates": {"read": 1, "write": 1, )" +
        R"("both": 6000000000, "update": )" + update + "}}}";
    const Result<Plan> plan = parse_plan(text);
    EXPECT_TRUE(plan.ok());
    return plan.ok() ? plan->optimizer.fraction : 0.0;
  };
  EXPECT_EQ(fraction("f32", "1000000000"), 0.5);
  EXPECT_EQ(fraction("f32", "400000000"), 1.0);
  EXPECT_EQ(fraction("bf16", "1000000000"), 0.75);
  EXPECT_EQ(fraction("int8", "1000000000"), 0.994);  // 4 + 2 + 2 / 64 bytes
  EXPECT_EQ(fraction("f32", "1000000000000000"), 0.001);
}

// Bytes by number or by text; and neither setting makes a preset another plan.
TEST(PlanJson, AWindowIsANumberOrAText) {
  for (const std::string window : {"4294967296", "\"4 GiB\""}) {
    const auto plan = parse_plan(R"({"preset": "zero3", "param": {"tier": "device", )"
                                 R"("register_values": true, "gather_window": )" +
                                 window + "}}");
    ASSERT_TRUE(plan.ok()) << plan.error().info().what;
    EXPECT_EQ(plan->param.gather_window, uint64_t{4} << 30);
    EXPECT_TRUE(plan->param.register_values);
    EXPECT_EQ(*parse_plan(to_json(*plan)), *plan);
  }
}

}  // namespace
}  // namespace meron
