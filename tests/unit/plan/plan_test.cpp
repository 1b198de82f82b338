// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "plan/table.h"

namespace meron {
namespace {

TEST(Preset, EachCutsOneMoreKind) {
  for (size_t stage = 0; stage < 4; ++stage) {
    const Result<Plan> plan = preset(kPresetNames[stage]);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->name, kPresetNames[stage]);
    EXPECT_EQ(is_sharded(plan->optimizer), stage >= 1);
    EXPECT_EQ(is_sharded(plan->gradient), stage >= 2);
    EXPECT_EQ(is_sharded(plan->param), stage >= 3);
    EXPECT_EQ(plan->gradient.buckets, 2u);
    EXPECT_TRUE(validate(*plan).ok());
  }
}

TEST(Preset, DefaultPlanIsZero0) {
  EXPECT_EQ(Plan{}, *preset("zero0"));
}

TEST(Preset, UnknownNameListsAndSuggests) {
  expect_error(preset("zero4"), MERON_E_ARGUMENT, "\"zero4\" is not the name of a preset",
               "did you mean \"zero3\"? Known presets: \"zero0\", \"zero1\", \"zero2\", \"zero3\", "
               "\"mics\", \"hpz\", \"zeropp\"");
  expect_error(preset("ZeRO-2"), MERON_E_ARGUMENT, "ZeRO-2", "did you mean \"zero2\"?");
  expect_error(preset("stage2"), MERON_E_ARGUMENT, "stage2", "known presets: \"zero0\"");
  expect_error(preset(""), MERON_E_ARGUMENT, "\"\" is not", "known presets");
  expect_error(preset("a\n\xff"), MERON_E_ARGUMENT, "\"a\\x0a\\xff\" is not");
}

TEST(GradientDType, FollowsTheParameterUnlessSet) {
  Plan plan;
  EXPECT_EQ(gradient_dtype(plan, DType::bf16), DType::bf16);
  EXPECT_EQ(gradient_dtype(plan, DType::f32), DType::f32);
  plan.gradient.dtype = DType::f32;
  EXPECT_EQ(gradient_dtype(plan, DType::bf16), DType::f32);
}

TEST(GradientDType, IsF32FromTheSecondMicroBatchOnWhereFullGradientsAreKept) {
  for (const std::string_view name : kPresetNames) {
    Plan plan = *preset(name);
    const bool full = name == "zero0" || name == "zero1";
    for (const DType narrow : {DType::bf16, DType::f16}) {
      EXPECT_EQ(gradient_dtype(plan, narrow, 2), full ? DType::f32 : narrow) << name;
      plan.gradient.rounds = true;
      EXPECT_EQ(gradient_dtype(plan, narrow, 2), narrow) << name;
      plan.gradient.rounds = false;
    }
    plan.gradient.dtype = DType::bf16;
    EXPECT_EQ(gradient_dtype(plan, DType::bf16, 2), DType::bf16) << name;
  }
}

TEST(Validate, WholeOptimizerNeedsWholeGradientsAndParameters) {
  for (int bits = 0; bits < 8; ++bits) {
    Plan plan;
    if (bits & 1) plan.param.sharding = Sharding::shard;
    if (bits & 2) plan.gradient.sharding = Sharding::shard;
    if (bits & 4) plan.optimizer.sharding = Sharding::shard;
    const Status valid = validate(plan);
    EXPECT_EQ(valid.ok(), bits == 0 || (bits & 4) != 0) << bits;
    if (valid.ok()) continue;
    expect_error(valid, MERON_E_ARGUMENT,
                 bits & 2 ? "so need the full gradient" : "so need the full parameters",
                 "shard the optimizer too");
  }
}

TEST(Validate, RefusesWhatIsNotOffered) {
  Plan plan;
  plan.gradient.tier = Tier::nvme;
  expect_error(validate(plan), MERON_E_UNSUPPORTED, "gradients on tier nvme", "host");
}

TEST(Validate, TiersMustNotContradictTheRest) {
  const auto nvme = [] {
    Plan plan = *preset("zero3");
    plan.optimizer.tier = Tier::nvme;
    plan.nvme.path = "/local";
    return plan;
  };
  EXPECT_TRUE(validate(nvme()).ok());
  const auto refused = [&](auto change, const char* what, const char* advice = "") {
    Plan plan = nvme();
    change(plan);
    expect_error(validate(plan), MERON_E_ARGUMENT, what, advice);
  };
  refused([](Plan& plan) { plan.nvme.path.clear(); }, "names no folder", "\"path\"");
  refused([](Plan& plan) { plan.nvme.path = std::string("a\0b", 3); }, "is no path");
  refused([](Plan& plan) { plan.optimizer.tier = Tier::host; }, "no entry has that tier");
  refused([](Plan& plan) { plan.optimizer.fraction = 0.0; }, "fraction", "tier host");
  refused([](Plan& plan) { plan.optimizer.fraction = 1.5; }, "fraction on nvme is 1.5");
  refused([](Plan& plan) { plan.optimizer.sub_group = 5000; }, "sub_group is 5000", "4096");
  refused([](Plan& plan) { plan.optimizer.buffers = 1; }, "1 buffers", "3 or more");
  refused([](Plan& plan) { plan.nvme.block = 5000; }, "block of nvme is 5000", "4096");
  refused([](Plan& plan) { plan.nvme.depth = 0; }, "depth of nvme is 0");
  refused([](Plan& plan) { plan.nvme.threads = 65; }, "threads of nvme is 65");
  Plan host = *preset("zero3");
  host.optimizer.sub_group = 8192;
  expect_error(validate(host), MERON_E_ARGUMENT, "need an optimizer on tier nvme",
               "leave them out");
}

TEST(PlanTest, RefusesParametersOnNvmeThatContradictTheRest) {
  const auto nvme = [] {
    Plan plan = *preset("zero3");
    plan.param.tier = Tier::nvme;
    plan.nvme.path = "/local";
    return plan;
  };
  EXPECT_TRUE(validate(nvme()).ok());
  const auto refused = [&](auto change, const char* what, const char* advice) {
    Plan plan = nvme();
    change(plan);
    expect_error(validate(plan), MERON_E_ARGUMENT, what, advice);
  };
  refused([](Plan& plan) { plan.nvme.path.clear(); }, "names no folder", "\"path\"");
  refused([](Plan& plan) { plan.param.sharding = Sharding::none; }, "not sharded", "zero3");
  refused(
      [](Plan& plan) {
        plan.mesh.shard = 2;
        plan.optimizer.sharding = Sharding::world;
      },
      "not sharded as the optimizer is", "the same sharding");
  refused(
      [](Plan& plan) {
        plan = *preset("hpz(2)");
        plan.param.tier = Tier::nvme;
        plan.nvme.path = "/local";
      },
      "secondary_partition (of hpZ) keeps parameters in memory", "secondary_partition");
  refused(
      [](Plan& plan) {
        plan.mesh.shard = 2;
        plan.param.sharding = plan.optimizer.sharding = Sharding::world;
        plan.param.codec.kind = CodecKind::int8;
      },
      "the codec of the parameters keeps them", "the codec");
  refused([](Plan& plan) { plan.param.buffers = 0; }, "buffers of the parameters", "2 or more");
  refused([](Plan& plan) { plan.param.resident = UINT64_MAX; }, "more than any memory", "2^40");
  Plan host = *preset("zero3");
  host.param.resident = 1;
  expect_error(validate(host), MERON_E_ARGUMENT, "need parameters on tier nvme", "leave them out");
}

TEST(Validate, CopiesAndCodecsOnTheDevice) {
  const auto changed = [](const char* name, auto change) {
    Plan plan = *preset(name);
    plan.param.tier = plan.gradient.tier = plan.optimizer.tier = Tier::device;
    change(plan);
    return validate(plan);
  };
  EXPECT_TRUE(changed("hpz(2)", [](Plan&) {}).ok());
  EXPECT_TRUE(changed("zeropp(2)", [](Plan&) {}).ok());
  EXPECT_TRUE(
      changed("mics(2)", [](Plan& plan) { plan.gradient.codec.kind = CodecKind::int4; }).ok());
  const auto refused = [&](const char* name, auto change, const char* what) {
    expect_error(changed(name, change), MERON_E_ARGUMENT, what, "leave");
  };
  refused(
      "zeropp(2)", [](Plan& plan) { plan.param.codec.difference = true; }, "has difference or");
  refused(
      "zeropp(2)", [](Plan& plan) { plan.param.codec.error_limit = 0.1; }, "error_limit");
  refused(
      "zeropp(2)", [](Plan& plan) { plan.gradient.codec.error_limit = 0.1; }, "error_limit");
  refused(
      "mics(2)",
      [](Plan& plan) {
        plan.optimizer.sharding = Sharding::world;
        plan.param.codec.kind = CodecKind::int8;
      },
      "sharded over replicas too");
}

TEST(Validate, BucketsAndNameHaveLimits) {
  for (const uint32_t buckets : {0u, kMaxGradientBuckets + 1, UINT32_MAX}) {
    Plan plan;
    plan.gradient.buckets = buckets;
    expect_error(validate(plan), MERON_E_ARGUMENT, "outside 1 to 64");
  }
  for (const uint32_t buckets : {1u, kMaxGradientBuckets}) {
    Plan plan;
    plan.gradient.buckets = buckets;
    EXPECT_TRUE(validate(plan).ok());
  }
  Plan plan;
  plan.name = "";
  expect_error(validate(plan), MERON_E_ARGUMENT, "the name is empty");
  plan.name = std::string(kMaxPlanName, 'x');
  EXPECT_TRUE(validate(plan).ok());
  plan.name += 'x';
  expect_error(validate(plan), MERON_E_ARGUMENT, "65 bytes, more than the limit of 64");
  plan.name = "two\nlines";
  expect_error(validate(plan), MERON_E_ARGUMENT, "control character");
  plan.name = "\xc3";
  expect_error(validate(plan), MERON_E_ARGUMENT, "not valid UTF-8");
}

TEST(Table, HasARowPerKind) {
  EXPECT_EQ(to_table(*preset("zero1")),
            "plan zero1\n"
            "kind       sharded over  tier  dtype                   wire codec\n"
            "param      none          host  as registered           none\n"
            "gradient   none          host  as param, added in f32  none\n"
            "optimizer  shard         host  f32                     -\n");
  Plan plan = *preset("zero3");
  plan.name = "mine";
  plan.gradient.dtype = DType::f16;
  plan.gradient.buckets = 3;
  EXPECT_EQ(to_table(plan),
            "plan mine\n"
            "kind       sharded over  tier  dtype          wire codec\n"
            "param      shard         host  as registered  none\n"
            "gradient   shard         host  f16            none\n"
            "optimizer  shard         host  f32            -\n"
            "gradient buckets in the ring: 3\n");
}

}  // namespace
}  // namespace meron
