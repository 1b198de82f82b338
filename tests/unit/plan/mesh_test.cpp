// SPDX-License-Identifier: Apache-2.0
// Plans with a mesh: their presets, what contradicts itself, and which ranks form one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "expect_error.h"
#include "plan/plan.h"
#include "plan/plan_json.h"
#include "plan/predict.h"
#include "plan/table.h"

namespace meron {
namespace {

Plan of(Sharding param, Sharding gradient, Sharding optimizer, uint32_t shard) {
  Plan plan;
  plan.mesh.shard = shard;
  plan.param.sharding = param;
  plan.gradient.sharding = gradient;
  plan.optimizer.sharding = optimizer;
  return plan;
}

constexpr Sharding kNone = Sharding::none, kShard = Sharding::shard, kWorld = Sharding::world;

TEST(MeshPreset, ArgumentIsTheShardAxis) {
  for (const std::string_view name : {"mics", "hpz", "zeropp"}) {
    const std::string call(name);
    EXPECT_EQ(preset(call)->mesh.shard, Mesh::kNode);
    EXPECT_EQ(preset(call + "(node)")->mesh.shard, Mesh::kNode);
    EXPECT_EQ(preset(call + "(1)")->mesh.shard, 1u);
    EXPECT_EQ(preset(call + "(65536)")->mesh.shard, kMaxPlanRanks);
    for (const char* argument : {"", "(node)", "(7)"}) {
      const Result<Plan> plan = preset(call + argument);
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(plan->name, call + argument);
      EXPECT_TRUE(validate(*plan).ok());
    }
  }
}

TEST(MeshPreset, AreTheTablesThatTheirPapersHave) {
  const Plan mics = *preset("mics(4)");
  EXPECT_EQ(mics.param.sharding, kShard);
  EXPECT_EQ(mics.gradient.sharding, kShard);
  EXPECT_EQ(mics.optimizer.sharding, kShard);
  EXPECT_FALSE(mics.param.secondary_partition);
  const Plan hpz = *preset("hpz(4)");
  EXPECT_EQ(hpz.param.sharding, kWorld);
  EXPECT_EQ(hpz.gradient.sharding, kWorld);
  EXPECT_EQ(hpz.optimizer.sharding, kWorld);
  EXPECT_TRUE(hpz.param.secondary_partition);
  EXPECT_EQ(hpz.param.codec, Codec{});
  Plan zeropp = *preset("zeropp(4)");
  EXPECT_EQ(zeropp.param.codec, (Codec{.kind = CodecKind::int8}));
  EXPECT_EQ(zeropp.gradient.codec.kind, CodecKind::int4);
  EXPECT_TRUE(zeropp.gradient.codec.feedback);
  zeropp.param.codec = zeropp.gradient.codec = {};
  zeropp.name = hpz.name;
  EXPECT_EQ(zeropp, hpz);
}

TEST(MeshPreset, BadArguments) {
  for (const char* word : {"0", "65537", "4294967295", "99999999999", "-1", "4.0", "4 ", " 4", "",
                           "nodes", "Node", "all", "4)", "(4", "+4", "0x4"}) {
    expect_error(preset(fmt::format("mics({})", word)), MERON_E_ARGUMENT,
                 fmt::format("\"{}\" is not the size of a shard axis", word),
                 "a number of ranks from 1 to 65536, or node");
  }
  expect_error(preset("zero3(4)"), MERON_E_ARGUMENT, "preset zero3 takes no argument",
               "the plan's key \"mesh\"");
  expect_error(preset("zero0(node)"), MERON_E_ARGUMENT, "zero0 takes no argument");
  for (const char* call : {"mics(4", "mics4)", "mics(4)x", "(4)", "mic(4)", "MICS(4)"}) {
    expect_error(preset(call), MERON_E_ARGUMENT, fmt::format("\"{}\" is not the name", call));
  }
  expect_error(preset("mixs"), MERON_E_ARGUMENT, "\"mixs\" is not", "did you mean \"mics\"?");
  expect_error(preset("zero++"), MERON_E_ARGUMENT, "\"zero++\" is not", "\"zeropp\"");
}

TEST(CheckMesh, RowsAndCodecsNeedReplicas) {
  using RowOf = Row& (*)(Plan&);
  for (const RowOf row : {RowOf([](Plan& plan) -> Row& { return plan.param; }),
                          RowOf([](Plan& plan) -> Row& { return plan.gradient; }),
                          RowOf([](Plan& plan) -> Row& { return plan.optimizer; })}) {
    Plan plan = of(kShard, kShard, kShard, Mesh::kAll);
    row(plan).sharding = kWorld;
    expect_error(validate(plan), MERON_E_ARGUMENT,
                 "are sharded over replicas, but the plan has no mesh", "\"mesh\": {\"shard\"");
    plan = of(kShard, kShard, kShard, Mesh::kAll);
    row(plan).codec.kind = CodecKind::bf16;
    expect_error(validate(plan), MERON_E_ARGUMENT,
                 "have a codec, which is for transfers between replicas, but the plan has no mesh");
  }
}

TEST(CheckMesh, AMeshHasItsLimitsAndItsUse) {
  Plan plan = of(kNone, kNone, kShard, kMaxPlanRanks);
  EXPECT_TRUE(validate(plan).ok());
  plan.mesh.shard = kMaxPlanRanks + 1;
  expect_error(validate(plan), MERON_E_ARGUMENT, "the shard axis has 65537 ranks", "at most 65536");
  plan.mesh.shard = UINT32_MAX - 1;
  expect_error(validate(plan), MERON_E_ARGUMENT, "the shard axis has 4294967294 ranks");
  expect_error(validate(of(kNone, kNone, kNone, 2)), MERON_E_ARGUMENT,
               "has a mesh, but its optimizer is not sharded", "or leave the mesh out");
  expect_error(validate(of(kNone, kNone, kNone, Mesh::kNode)), MERON_E_ARGUMENT, "has a mesh, but");
}

TEST(CheckMesh, NothingIsCutFinerThanTheOptimizer) {
  expect_error(validate(of(kWorld, kShard, kShard, 2)), MERON_E_ARGUMENT,
               "parameters are sharded over more ranks than the optimizer",
               "let the optimizer have \"replica x shard\" too");
  expect_error(validate(of(kShard, kWorld, kShard, 2)), MERON_E_ARGUMENT,
               "gradients are sharded over more ranks than the optimizer");
  int sound = 0;
  for (const Sharding param : {kNone, kShard, kWorld}) {
    for (const Sharding gradient : {kNone, kShard, kWorld}) {
      for (const Sharding optimizer : {kNone, kShard, kWorld}) {
        const bool expected = optimizer != kNone && param <= optimizer && gradient <= optimizer;
        EXPECT_EQ(validate(of(param, gradient, optimizer, 2)).ok(), expected);
        sound += expected;
      }
    }
  }
  EXPECT_EQ(sound, 4 + 9);
}

TEST(CheckMesh, ASecondaryPartitionIsOfWhatIsCutOverReplicas) {
  for (const Sharding param : {kNone, kShard}) {
    Plan plan = of(param, kShard, kWorld, 2);
    plan.param.secondary_partition = true;
    expect_error(validate(plan), MERON_E_ARGUMENT, "secondary_partition (of hpZ) needs",
                 "or leave secondary_partition out");
  }
  Plan plan = of(kWorld, kShard, kWorld, 2);
  plan.param.secondary_partition = true;
  EXPECT_TRUE(validate(plan).ok());
}

TEST(CheckMesh, FrozenInt8NeedsParametersCutAsTheOptimizer) {
  const auto frozen = [](Sharding param, Sharding optimizer, uint32_t shard) {
    Plan plan = of(param, kNone, optimizer, shard);
    plan.param.frozen_int8 = true;
    return validate(plan);
  };
  EXPECT_TRUE(frozen(kShard, kShard, Mesh::kAll).ok());
  EXPECT_TRUE(frozen(kShard, kShard, 2).ok());
  EXPECT_TRUE(frozen(kWorld, kWorld, 2).ok());
  for (const Status& refused : {frozen(kNone, kNone, Mesh::kAll), frozen(kNone, kShard, Mesh::kAll),
                                frozen(kShard, kWorld, 2), frozen(kNone, kWorld, 2)}) {
    expect_error(refused, MERON_E_ARGUMENT,
                 "frozen parameters are int8, but parameters are not sharded as the optimizer is",
                 "the same sharding, and not none");
  }
}

TEST(CheckMesh, ACodecOfParametersNeedsThemToTravel) {
  const auto coded = [](Sharding param, Sharding optimizer) {
    Plan plan = of(param, kNone, optimizer, 2);
    plan.param.codec.kind = CodecKind::int8;
    return validate(plan);
  };
  EXPECT_TRUE(coded(kWorld, kWorld).ok());
  EXPECT_TRUE(coded(kShard, kWorld).ok());
  for (const Status& refused :
       {coded(kShard, kShard), coded(kNone, kShard), coded(kNone, kWorld)}) {
    expect_error(refused, MERON_E_ARGUMENT,
                 "parameters have a codec, but are not sent between replicas");
  }
}

TEST(CheckCodec, EachRefusal) {
  struct Bad {
    Codec codec;
    const char* what;
  };
  const auto zeropp = [](const Codec& param, const Codec& gradient) {
    Plan plan = *preset("zeropp(2)");
    plan.param.codec = param;
    plan.gradient.codec = gradient;
    return validate(plan);
  };
  constexpr CodecKind kInt8 = CodecKind::int8;
  const Bad cases[] = {
      {{.kind = kInt8, .block = 32}, "block is 32"},
      {{.kind = kInt8, .block = 4096}, "block is 4096"},
      {{.kind = kInt8, .block = 100}, "block is 100"},
      {{.kind = kInt8, .block = 0}, "block is 0"},
      {{.kind = CodecKind::bf16, .stochastic = true}, "bf16 has no blocks"},
      {{.hadamard = true}, "none has no blocks"},
      {{.kind = CodecKind::bf16, .feedback = true}, "bf16 has no blocks"},
      {{.kind = CodecKind::bf16, .difference = true}, "bf16 has no blocks"},
      {{.kind = kInt8, .feedback_beta = 1.0}, "beta is 1"},
      {{.kind = kInt8, .feedback_beta = -0.5}, "beta is -0.5"},
      {{.kind = kInt8, .feedback_beta = std::nan("")}, "beta is nan"},
      {{.kind = kInt8, .feedback_reset = kMaxFeedbackReset + 1}, "reset is 1073741825"},
      {{.kind = kInt8, .error_limit = -0.1}, "error_limit is -0.1"},
      {{.kind = kInt8, .error_limit = std::numeric_limits<double>::infinity()},
       "error_limit is inf"},
      {{.kind = kInt8, .error_limit = std::nan("")}, "error_limit is nan"},
      {{.kind = CodecKind::bf16, .error_limit = 0.1}, "error_limit has no codec to replace"},
      {{.kind = kInt8, .feedback_beta = 0.5}, "beta and reset need feedback"},
      {{.kind = kInt8, .feedback_reset = 1}, "beta and reset need feedback"},
  };
  for (const Bad& bad : cases) {
    expect_error(zeropp(bad.codec, {}), MERON_E_ARGUMENT,
                 std::string("the codec of the parameters: ") + bad.what);
    expect_error(zeropp({}, bad.codec), MERON_E_ARGUMENT,
                 std::string("the codec of the gradients: ") + bad.what);
  }
  constexpr Codec kFeedback = {.kind = kInt8, .feedback = true};
  EXPECT_TRUE(zeropp({}, kFeedback).ok());
  expect_error(zeropp(kFeedback, {}), MERON_E_ARGUMENT, "feedback is for gradients");
  constexpr Codec kDifference = {.kind = kInt8, .difference = true};
  EXPECT_TRUE(zeropp(kDifference, {}).ok());
  expect_error(zeropp({}, kDifference), MERON_E_ARGUMENT, "difference is for parameters");
}

// The base of the difference has to be in memory still.
TEST(MeshPlans, DifferencesNeedValuesThatStay) {
  Plan plan = *preset("hpz(2)");
  plan.param.codec = {.kind = CodecKind::int4, .difference = true};
  EXPECT_TRUE(validate(plan).ok());
  plan.param.secondary_partition = false;
  expect_error(validate(plan), MERON_E_ARGUMENT,
               "a difference needs the values before, which this plan drops after each gather",
               "or the sharding of param to \"shard\", or leave difference out");
  plan.param.sharding = Sharding::shard;  // rows that replicas hold alike
  EXPECT_TRUE(validate(plan).ok());
}

TEST(MeshShapeOf, RanksSideBySideShareARow) {
  const auto shape = [](const char* plan, uint32_t ranks, uint32_t node) {
    return *mesh_shape(*preset(plan), ranks, node);
  };
  EXPECT_EQ(shape("zero3", 6, 4), (MeshShape{.shards = 6, .replicas = 1}));
  EXPECT_EQ(shape("zero3", 6, 0), (MeshShape{.shards = 6, .replicas = 1}));
  EXPECT_EQ(shape("mics(2)", 6, 6), (MeshShape{.shards = 2, .replicas = 3}));
  EXPECT_EQ(shape("mics(2)", 8, 4), (MeshShape{.shards = 2, .replicas = 4}));
  EXPECT_EQ(shape("mics(4)", 8, 2), (MeshShape{.shards = 4, .replicas = 2}));
  EXPECT_EQ(shape("mics(3)", 6, 1), (MeshShape{.shards = 3, .replicas = 2}));
  EXPECT_EQ(shape("mics(3)", 6, 0), (MeshShape{.shards = 3, .replicas = 2}));
  EXPECT_EQ(shape("mics(6)", 6, 6), (MeshShape{.shards = 6, .replicas = 1}));
  EXPECT_EQ(shape("mics(1)", 1, 1), (MeshShape{.shards = 1, .replicas = 1}));
  EXPECT_EQ(shape("mics", 8, 4), (MeshShape{.shards = 4, .replicas = 2}));
  EXPECT_EQ(shape("mics", 8, 1), (MeshShape{.shards = 1, .replicas = 8}));
  EXPECT_EQ(shape("mics", 4, 8), (MeshShape{.shards = 4, .replicas = 1}));
}

TEST(MeshShapeOf, ErrorsHaveTheNumbers) {
  const auto refused = [](const char* plan, uint32_t ranks, uint32_t node) {
    return mesh_shape(*preset(plan), ranks, node);
  };
  expect_error(refused("mics(4)", 6, 6), MERON_E_ARGUMENT,
               "plan 'mics(4)' has a shard axis of 4 ranks, which does not divide the 6 ranks",
               "a size that divides");
  expect_error(refused("mics(8)", 4, 4), MERON_E_ARGUMENT, "8 ranks, which does not divide the 4");
  expect_error(refused("mics", 6, 4), MERON_E_ARGUMENT, "4 ranks, which does not divide the 6");
  expect_error(refused("mics(2)", 6, 3), MERON_E_ARGUMENT,
               "a shard axis of 2 ranks, and a node has 3", "a multiple of, the ranks of a node");
  expect_error(refused("mics(6)", 12, 4), MERON_E_ARGUMENT,
               "a shard axis of 6 ranks, and a node has 4");
  expect_error(refused("mics(2)", 6, 4), MERON_E_ARGUMENT,
               "a mesh of 6 ranks, which do not fill nodes of 4", "equally many");
  expect_error(refused("hpz", 6, 0), MERON_E_UNSUPPORTED,
               "plan 'hpz' has a mesh by nodes, whose numbers of ranks differ",
               "the shard axis as a number");
}

TEST(MeshTable, SaysWhereADifferenceTravels) {
  Plan plan = *preset("zeropp(4)");
  plan.param.codec.difference = true;
  EXPECT_NE(to_table(plan).find("as registered  int8 by 256, difference\n"), std::string::npos);
}

TEST(MeshTable, HasTheMeshTheCopyAndTheCodecs) {
  EXPECT_EQ(
      to_table(*preset("zeropp(4)")),
      "plan zeropp(4)\n"
      "mesh: replica x shard, the shard axis 4 ranks\n"
      "kind                        sharded over     tier  dtype          wire codec\n"
      "param                       replica x shard  host  as registered  int8 by 256\n"
      "param, secondary partition  shard            host  as registered  -\n"
      "gradient                    replica x shard  host  as param       int4 by 256, feedback\n"
      "optimizer                   replica x shard  host  f32            -\n"
      "gradient buckets in the ring: 2\n");
  Plan plan = *preset("mics(1)");
  plan.param.frozen_int8 = true;
  plan.gradient.codec = {
      .kind = CodecKind::int8, .block = 64, .stochastic = true, .hadamard = true};
  EXPECT_EQ(to_table(plan),
            "plan mics(1)\n"
            "mesh: replica x shard, the shard axis 1 rank\n"
            "kind       sharded over  tier  dtype                             wire codec\n"
            "param      shard         host  as registered, int8 where frozen  none\n"
            "gradient   shard         host  as param                          "
            "int8 by 64, stochastic, hadamard\n"
            "optimizer  shard         host  f32                               -\n"
            "gradient buckets in the ring: 2\n");
  EXPECT_THAT(to_table(*preset("hpz")),
              testing::HasSubstr("mesh: replica x shard, the shard axis a node's ranks\n"));
}

}  // namespace
}  // namespace meron
