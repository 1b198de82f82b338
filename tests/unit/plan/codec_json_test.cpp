// SPDX-License-Identifier: Apache-2.0
// Meshes, codecs and secondary partitions as JSON.
#include <gtest/gtest.h>

#include <string>

#include "expect_error.h"
#include "plan/plan_json.h"

namespace meron {
namespace {

// A plan whose gradients have this codec.
std::string with_codec(const std::string& codec) {
  return R"-({"preset": "zeropp(2)", "gradient": {"codec": )-" + codec + "}}";
}

Codec codec_of(const std::string& codec) {
  const Result<Plan> plan = parse_plan(with_codec(codec));
  EXPECT_TRUE(plan.ok()) << plan.error().info().what;
  return plan ? plan->gradient.codec : Codec{};
}

TEST(CodecJson, AWordIsACodecWithItsDefaults) {
  EXPECT_EQ(codec_of(R"("none")"), Codec{});
  EXPECT_EQ(codec_of(R"("bf16")"), (Codec{.kind = CodecKind::bf16}));
  EXPECT_EQ(codec_of(R"("int8")"), (Codec{.kind = CodecKind::int8}));
  EXPECT_EQ(codec_of(R"("int4")"), (Codec{.kind = CodecKind::int4}));
  EXPECT_EQ(codec_of(R"({"kind": "int4"})"), (Codec{.kind = CodecKind::int4}));
  EXPECT_EQ(codec_of("{}"), Codec{});
}

TEST(CodecJson, EveryKey) {
  EXPECT_EQ(codec_of(R"({"kind": "int8", "block": 64})"),
            (Codec{.kind = CodecKind::int8, .block = 64}));
  EXPECT_EQ(codec_of(R"({"kind": "int8", "block": 2048})").block, 2048u);
  EXPECT_TRUE(codec_of(R"({"kind": "int8", "rounding": "stochastic"})").stochastic);
  EXPECT_FALSE(codec_of(R"({"kind": "int8", "rounding": "nearest"})").stochastic);
  EXPECT_TRUE(codec_of(R"({"kind": "int8", "hadamard": true})").hadamard);
  EXPECT_FALSE(codec_of(R"({"kind": "int8", "hadamard": false})").hadamard);
  EXPECT_FALSE(codec_of(R"({"kind": "int8", "feedback": false})").feedback);
  EXPECT_EQ(codec_of(R"({"kind": "int8", "feedback": true})"),
            (Codec{.kind = CodecKind::int8, .feedback = true}));
  EXPECT_EQ(codec_of(R"({"kind": "int8", "feedback": {"beta": 0.5}})"),
            (Codec{.kind = CodecKind::int8, .feedback = true, .feedback_beta = 0.5}));
  EXPECT_EQ(
      codec_of(R"({"kind": "int8", "feedback": {"reset": 1073741824}})"),
      (Codec{.kind = CodecKind::int8, .feedback = true, .feedback_reset = kMaxFeedbackReset}));
  EXPECT_EQ(codec_of(R"({"kind": "int8", "error_limit": 0.125})").error_limit, 0.125);
  EXPECT_EQ(codec_of(R"({"kind": "int8", "error_limit": 1})").error_limit, 1.0);
}

TEST(CodecJson, ParametersMayTravelAsDifferences) {
  const auto difference = [](const char* value) {
    return parse_plan(std::string(R"({"preset": "hpz", "param": {"codec": {"kind": "int8",)") +
                      "\n\"difference\": " + value + "}}}");
  };
  EXPECT_TRUE(difference("true")->param.codec.difference);
  EXPECT_FALSE(difference("false")->param.codec.difference);
  expect_error(difference("1"), MERON_E_PARSE,
               "line 2, key \"param.codec.difference\": must be true or false, not a number");
}

// Options of a preset's codec do not remain in another codec.
TEST(CodecJson, ReplacesThatOfThePreset) {
  EXPECT_TRUE(preset("zeropp(2)")->gradient.codec.feedback);
  EXPECT_FALSE(codec_of(R"("int4")").feedback);
  EXPECT_FALSE(codec_of(R"({"kind": "int4", "block": 256})").feedback);
  const Result<Plan> kept =
      parse_plan(R"-({"preset": "zeropp(2)", "gradient": {"dtype": "f32"}})-");
  EXPECT_EQ(kept->gradient.codec, preset("zeropp(2)")->gradient.codec);
}

struct BadText {
  std::string text;
  const char* what;
  const char* advice = "";
  meron_status code = MERON_E_PARSE;
};

void expect_refused(const BadText& bad) {
  SCOPED_TRACE(bad.text);
  const Result<Plan> plan = parse_plan(bad.text);
  expect_error(plan, bad.code, bad.what, bad.advice);
  if (!plan) {
    EXPECT_EQ(plan.error().info().subject, "plan");
  }
}

TEST(CodecJson, ErrorsNameLineAndKey) {
  const BadText cases[] = {
      {with_codec("3"), "key \"gradient.codec\": must be an object, not a number"},
      {with_codec("\n\n\"int6\""), "line 3, key \"gradient.codec\": \"int6\" is not a wire codec",
       "did you mean \"int4\"? Known values: \"none\", \"bf16\", \"int8\", \"int4\""},
      {with_codec("\"fp8\""), "wire codec \"fp8\" is not offered by this version", "\"int8\"",
       MERON_E_UNSUPPORTED},
      {with_codec("{\"kind\": \"fp8\"}"), "key \"gradient.codec.kind\": wire codec \"fp8\" is not",
       "", MERON_E_UNSUPPORTED},
      {with_codec("{\n\"kind\": 8}"), "line 2, key \"gradient.codec.kind\": must be a string"},
      {with_codec("{\"blocks\": 64}"), "key \"gradient.codec.blocks\": unknown key",
       "did you mean \"block\"?"},
      {with_codec("{\"kind\": \"int8\",\n\"block\": 32}"),
       "line 2, key \"gradient.codec.block\": must be a whole number from 64 to 2048, not 32"},
      {with_codec("{\"kind\": \"int8\", \"block\": 4096}"), "from 64 to 2048, not 4096"},
      {with_codec("{\"kind\": \"int8\", \"block\": \"64\"}"), "must be a whole number"},
      {with_codec("\n{\"kind\": \"int8\", \"block\": 96}"),
       "line 2, key \"gradient.codec\": the codec of the gradients: block is 96", "power of two"},
      {with_codec("{\"kind\": \"int8\", \"rounding\": \"up\"}"),
       "key \"gradient.codec.rounding\": \"up\" is not a rounding",
       "known values: \"nearest\", \"stochastic\""},
      {with_codec("{\"kind\": \"int8\", \"rounding\": true}"), "must be a string"},
      {with_codec("{\"kind\": \"int8\", \"hadamard\": 1}"),
       "key \"gradient.codec.hadamard\": must be true or false, not a number"},
      {with_codec("{\"kind\": \"int8\", \"feedback\": 1}"),
       "key \"gradient.codec.feedback\": must be an object, not a number"},
      {with_codec("{\"kind\": \"int8\", \"feedback\": {\"gamma\": 1}}"),
       "key \"gradient.codec.feedback.gamma\": unknown key"},
      {with_codec("{\"kind\": \"int8\", \"feedback\": {\"beta\": \"1\"}}"),
       "key \"gradient.codec.feedback.beta\": must be a number, not a string"},
      {with_codec("{\"kind\": \"int8\", \"feedback\": {\"beta\": 1.0}}"), "beta is 1"},
      {with_codec("{\"kind\": \"int8\", \"feedback\": {\"beta\": -1}}"), "beta is -1"},
      {with_codec("{\"kind\": \"int8\", \"feedback\": {\"reset\": -1}}"),
       "key \"gradient.codec.feedback.reset\": must be a whole number from 0 to 1073741824, not "
       "-1"},
      {with_codec("{\"kind\": \"int8\", \"feedback\": {\"reset\": 1073741825}}"), "not 1073741825"},
      {with_codec("{\"kind\": \"int8\", \"error_limit\": -1}"), "error_limit is -1"},
      {with_codec("{\"kind\": \"int8\", \"error_limit\": null}"),
       "key \"gradient.codec.error_limit\": must be a number, not null"},
      {with_codec("{\"kind\": \"bf16\", \"error_limit\": 0.1}"), "no codec to replace"},
      {with_codec("{\"kind\": \"bf16\", \"hadamard\": true}"), "bf16 has no blocks"},
      {with_codec("{\"rounding\": \"stochastic\"}"), "none has no blocks"},
      {R"({"preset": "zeropp", "param": {"codec": {"kind": "int8", "feedback": true}}})",
       "key \"param.codec\": the codec of the parameters: feedback is for gradients"},
      {with_codec("{\"kind\": \"int8\", \"difference\": true}"),
       "key \"gradient.codec\": the codec of the gradients: difference is for parameters"},
      {R"({"preset": "hpz", "param": {"secondary_partition": "none",
           "codec": {"kind": "int8", "difference": true}}})",
       "key \"param.codec\": the codec of the parameters: a difference needs the values before, "
       "which this plan drops after each gather",
       "set \"secondary_partition\" of param to \"shard\""},
      {R"({"preset": "zeropp", "optimizer": {"codec": "int8"}})",
       "key \"optimizer.codec\": unknown key"},
  };
  for (const BadText& bad : cases) expect_refused(bad);
}

TEST(MeshJson, EverySize) {
  const auto shard = [](const char* value) {
    const Result<Plan> plan =
        parse_plan(std::string(R"({"preset": "zero3", "mesh": {"shard": )") + value + "}}");
    EXPECT_TRUE(plan.ok()) << value;
    return plan ? plan->mesh.shard : UINT32_MAX - 1;
  };
  EXPECT_EQ(shard("1"), 1u);
  EXPECT_EQ(shard("65536"), 65536u);
  EXPECT_EQ(shard("\"node\""), Mesh::kNode);
  EXPECT_EQ(shard("\"all\""), Mesh::kAll);
  EXPECT_EQ(parse_plan(R"-({"preset": "mics(4)", "mesh": {"shard": "all"}})-")->name, "zero3");
}

TEST(MeshJson, ErrorsNameLineAndKey) {
  const auto mesh = [](const char* value) {
    return std::string("{\"preset\": \"zero3\",\n\"mesh\": ") + value + "}";
  };
  const BadText cases[] = {
      {mesh("4"), "line 2, key \"mesh\": must be an object, not a number"},
      {mesh("{}"), "line 2, key \"mesh\": the key \"shard\" is missing", "add \"shard\""},
      {mesh("{\"shards\": 4}"), "key \"mesh.shards\": unknown key", "did you mean \"shard\"?"},
      {mesh("{\"shard\":\n0}"),
       "line 3, key \"mesh.shard\": must be a whole number from 1 to 65536, not 0"},
      {mesh("{\"shard\": 65537}"), "not 65537"},
      {mesh("{\"shard\": 1.5}"), "not 1.5"},
      {mesh("{\"shard\": null}"), "key \"mesh.shard\": must be a whole number"},
      {mesh("{\"shard\": \"host\"}"), "key \"mesh.shard\": \"host\" is not the size of an axis",
       "give a number of ranks, \"node\" or \"all\""},
      {"{\"mesh\": {\"shard\": 2}}", "key \"mesh\": the plan has a mesh, but its optimizer is not"},
  };
  for (const BadText& bad : cases) expect_refused(bad);
}

TEST(MeshJson, RowsThatContradictEachOther) {
  const BadText cases[] = {
      {"{\"preset\": \"zero3\",\n\"optimizer\": {\"sharding\": \"replica x shard\"}}",
       "line 2, key \"optimizer.sharding\": optimizer are sharded over replicas, but the plan has "
       "no"},
      {"{\"preset\": \"zero3\", \"param\": {\"codec\": \"int8\"}}",
       "key \"param.codec\": parameters have a codec"},
      {"{\"preset\": \"mics(2)\",\n\"param\": {\"secondary_partition\": \"shard\"}}",
       "line 2, key \"param.secondary_partition\": secondary_partition (of hpZ) needs"},
      {"{\"preset\": \"mics(2)\", \"param\": {\"sharding\": \"replica x shard\"}}",
       "key \"param.sharding\": parameters are sharded over more ranks than the optimizer"},
      {"{\"preset\": \"zero2\", \"param\": {\"frozen\": \"int8\"}}",
       "frozen parameters are int8, but parameters are not sharded as the optimizer is"},
      {"{\"preset\": \"zero3\", \"param\": {\"frozen\": \"bf16\"}}",
       "dtype of frozen parameters \"bf16\" is not offered", "\"int8\"", MERON_E_UNSUPPORTED},
      {"{\"preset\": \"zero3\", \"param\": {\"frozen\": \"f8\"}}",
       "\"f8\" is not a dtype of frozen parameters"},
      {"{\"preset\": \"hpz\", \"param\": {\"secondary_partition\": true}}", "must be a string"},
      {"{\"preset\": \"hpz\", \"param\": {\"secondary_partition\": \"node\"}}",
       "secondary partition \"node\" is not offered", "\"shard\"", MERON_E_UNSUPPORTED},
      {"{\"preset\":\n\"mics(0)\"}",
       "line 2, key \"preset\": \"0\" is not the size of a shard axis"},
      {"{\"preset\":\n\"zero2(4)\"}", "line 2, key \"preset\": preset zero2 takes no argument"},
  };
  for (const BadText& bad : cases) expect_refused(bad);
}

TEST(MeshJson, ReadsTheFormerKeyOfTheSecondaryPartition) {
  const Result<Plan> former = parse_plan(R"({"preset": "hpz", "param": {"second_copy": "none"}})");
  ASSERT_TRUE(former.ok()) << former.error().info().what;
  const Result<Plan> current =
      parse_plan(R"({"preset": "hpz", "param": {"secondary_partition": "none"}})");
  EXPECT_EQ(*former, *current);
  EXPECT_EQ(to_json(*former).find("second_copy"), std::string::npos);
  expect_refused({"{\"preset\": \"hpz\",\n\"param\": {\"second_copy\": \"node\"}}",
                  "line 2, key \"param.second_copy\": secondary partition \"node\" is not offered",
                  "\"shard\"", MERON_E_UNSUPPORTED});
  expect_refused(
      {R"({"preset": "hpz", "param": {"second_copy": "none", "secondary_partition": "none"}})",
       "key \"param.second_copy\": is the former name of secondary_partition"});
}

TEST(MeshJson, TextOfAPreset) {
  EXPECT_EQ(to_json(*preset("zeropp(4)"), -1),
            R"-({"name":"zeropp(4)","mesh":{"shard":4},)-"
            R"("param":{"sharding":"replica x shard","tier":"host","dtype":"registered",)"
            R"("frozen":"registered","secondary_partition":"shard","codec":"int8"},)"
            R"("gradient":{"sharding":"replica x shard","tier":"host","dtype":"auto",)"
            R"("codec":{"kind":"int4","block":256,"rounding":"nearest","hadamard":false,)"
            R"("feedback":{"beta":0.8,"reset":1024},"difference":false,"error_limit":0.0}},)"
            R"("optimizer":{"sharding":"replica x shard","tier":"host","dtype":"f32"},)"
            R"("gradient_buckets":2})");
}

TEST(MeshJson, NamedAfterThePresetThatItEquals) {
  const auto name = [](const std::string& keys) { return parse_plan("{" + keys + "}")->name; };
  EXPECT_EQ(name(R"-("preset": "mics")-"), "mics");
  EXPECT_EQ(name(R"-("preset": "mics(node)")-"), "mics");
  EXPECT_EQ(name(R"-("preset": "mics(4)")-"), "mics(4)");
  EXPECT_EQ(name(R"-("preset": "mics(4)", "mesh": {"shard": 2})-"), "mics(2)");
  EXPECT_EQ(name(R"-("preset": "zero3", "mesh": {"shard": "node"})-"), "mics");
  EXPECT_EQ(name(R"-("preset": "hpz(4)", "param": {"secondary_partition": "none"})-"), "custom");
  EXPECT_EQ(name(R"-("preset": "zeropp(4)", "param": {"codec": "none"},
                     "gradient": {"codec": "none"})-"),
            "hpz(4)");
  EXPECT_EQ(name(R"-("preset": "zeropp(4)", "gradient": {"codec": "int4"})-"), "custom");
  EXPECT_EQ(name(R"-("preset": "zero1", "mesh": {"shard": 4})-"), "custom");
  EXPECT_EQ(name(R"-("preset": "mics(4)", "name": "mine")-"), "mine");
}

TEST(PlanDifference, NamesEachKeyAndBothValues) {
  const auto difference = [](const char* a, const char* b) {
    return plan_difference(to_json(*preset(a), -1), to_json(*preset(b), -1));
  };
  EXPECT_EQ(difference("zero3", "zero3"), "");
  EXPECT_EQ(difference("zero1", "zero2"),
            R"(name: "zero1" and "zero2"; gradient.sharding: "none" and "shard")");
  EXPECT_EQ(difference("zero2", "zero1"),
            R"(name: "zero2" and "zero1"; gradient.sharding: "shard" and "none")");
  EXPECT_EQ(difference("mics(2)", "mics"),
            R"-(name: "mics(2)" and "mics"; mesh.shard: 2 and "node")-");
  // Entries that only one side has.
  EXPECT_EQ(difference("hpz(2)", "zeropp(2)"),
            R"-(name: "hpz(2)" and "zeropp(2)"; param.codec: "none" and "int8"; )-"
            R"(gradient.codec: "none" and nothing; gradient.codec.kind: nothing and "int4"; )"
            R"(gradient.codec.block: nothing and 256; )"
            R"(gradient.codec.rounding: nothing and "nearest"; )"
            R"(gradient.codec.hadamard: nothing and false; )"
            R"(gradient.codec.feedback.beta: nothing and 0.8; )"
            R"(gradient.codec.feedback.reset: nothing and 1024; )"
            R"(gradient.codec.difference: nothing and false; )"
            R"(gradient.codec.error_limit: nothing and 0)");
}

TEST(PlanDifference, NamesACodecOfDifferences) {
  const auto text = [](const char* flag) {
    return to_json(*parse_plan(std::string(R"-({"preset": "hpz(2)", "param": {"codec": )-") +
                               R"({"kind": "int8", "block": 64, "difference": )" + flag + "}}}"),
                   -1);
  };
  EXPECT_EQ(plan_difference(text("true"), text("false")), "param.codec.difference: true and false");
}

// It is shown what peers wrote into shared memory.
TEST(PlanDifference, TakesAnyText) {
  const std::string plan = to_json(*preset("zero3"), -1);
  for (const char* text : {"", "{", "[]", "3", "null", "\xff", "{\"name\": \"\\u0000\"}"}) {
    EXPECT_NE(plan_difference(plan, text), "") << text;
    EXPECT_NE(plan_difference(text, plan), "") << text;
    EXPECT_EQ(plan_difference(text, text), "") << text;
  }
}

}  // namespace
}  // namespace meron
