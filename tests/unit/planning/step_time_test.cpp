// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/step_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/plan_json.h"
#include "tests/unit/plan/expect_error.h"
#include "tools/meron/planning/candidate_plans.h"

namespace meron::planning {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// 4 MiB of f32 in one unit.
ModelDesc one_unit() {
  return {{{"unit", {{DType::f32, kMiB, true}}}}};
}

// A message between nodes takes a millisecond and a byte a nanosecond; inside a node a tenth of
// that, and in memory a hundredth.
Cluster two_by_two() {
  return {.name = "2 x 2",
          .nodes = 2,
          .devices_per_node = 2,
          .between = {1e9, 1e-3},
          .inside = {1e10, 1e-4},
          .memory = 1e9,
          .memory_rate = 1e11,
          .flops = 1e12};
}

Estimate of(std::string_view plan, const Cluster& cluster, const ClusterLoad& load = {},
            const ModelDesc& model = one_unit()) {
  const Result<Plan> parsed = plan.starts_with('{') ? parse_plan(plan) : preset(plan);
  EXPECT_TRUE(parsed.ok());
  const Result<Estimate> got = estimate(*parsed, model, cluster, load);
  EXPECT_TRUE(got.ok()) << got.error().info().what;
  return *got;
}

// A shard is 1 MiB. Per gather each rank fetches one of the two remote shards, and reads the other
// two inside its node; a reduction reads two remote shards and one local one.
TEST(EstimateByHand, Zero3) {
  const Estimate got = of("zero3", two_by_two());
  EXPECT_EQ(got.between.bytes, 2 * (2 * kMiB + 2 * kMiB));
  EXPECT_EQ(got.between.messages, 2u + 1);
  EXPECT_DOUBLE_EQ(got.between.transfer, 8 * 1.048576e-3);
  EXPECT_DOUBLE_EQ(got.between.waiting, 3e-3);
  EXPECT_EQ(got.inside.bytes, 2 * 2 * kMiB + kMiB);
  EXPECT_EQ(got.inside.messages, 3u);
  EXPECT_DOUBLE_EQ(got.inside.seconds(), 5 * 1.048576e-4 + 3e-4);
  EXPECT_EQ(got.copied, 2 * (4 * kMiB + 2 * kMiB + 3 * kMiB));
  EXPECT_DOUBLE_EQ(got.copying, 18 * 1.048576e-5);
  EXPECT_EQ(got.updated, kMiB / 4 * 28);
  EXPECT_DOUBLE_EQ(got.updating, 7 * 1.048576e-5);
  EXPECT_EQ(got.computing, 0);
  EXPECT_DOUBLE_EQ(got.with_overlap(), got.between.seconds() + got.updating);
  EXPECT_DOUBLE_EQ(got.without_overlap(),
                   got.between.seconds() + got.inside.seconds() + got.copying + got.updating);
  EXPECT_FALSE(got.lossy);
}

// A row is 2 MiB, gathered inside a node. Once a step each rank takes its part (1 MiB) of its row's
// sum from the other node and then the other's sum of the other part.
TEST(EstimateByHand, Mics) {
  const Estimate got = of("mics(2)", two_by_two(), {.micro_batches = 3});
  EXPECT_EQ(got.between.bytes, 2 * (kMiB + kMiB));
  EXPECT_EQ(got.between.messages, 2u);
  EXPECT_EQ(got.inside.bytes, 3 * 2 * (2 * kMiB) + 3 * (2 * kMiB));
  EXPECT_EQ(got.inside.messages, 3u * 2 + 3);
  EXPECT_EQ(got.updated, kMiB / 2 * 28);
}

// Parameters come from the other node once for both gathers.
TEST(EstimateByHand, SecondaryPartitionsSaveTheSecondGather) {
  const Estimate by_nodes =
      of(R"({"preset": "hpz", "param": {"secondary_partition": "none"}})", two_by_two());
  const Estimate hpz = of("hpz", two_by_two());
  EXPECT_EQ(by_nodes.between.bytes - hpz.between.bytes, 2 * kMiB);
  EXPECT_EQ(by_nodes.between.messages - hpz.between.messages, 1u);
  EXPECT_EQ(hpz.memory.states - by_nodes.memory.states, kMiB);
}

// Each rank has the other three's parts refreshed once: one from its own node, two from other
// nodes.
TEST(EstimateByHand, RefreshOfParametersIsWithinAndBetweenNodes) {
  const Estimate got = of("zero1", two_by_two());
  EXPECT_EQ(got.between.bytes, 2 * (2 * kMiB / 2 + 2 * kMiB));
  EXPECT_EQ(got.inside.bytes, 2 * kMiB + kMiB);
}

TEST(EstimateByHand, InPlaceParametersCrossNothing) {
  Cluster cluster = two_by_two();
  const Estimate copied = of("zero3", cluster);
  cluster.in_place = true;
  const Estimate in_place = of("zero3", cluster);
  EXPECT_EQ(copied.inside.bytes - in_place.inside.bytes, 4 * kMiB);
  EXPECT_EQ(copied.copied - in_place.copied, 8 * kMiB);
  EXPECT_EQ(copied.between, in_place.between);
  EXPECT_EQ(copied.memory.gathered, 4 * kMiB);
  EXPECT_EQ(in_place.memory.gathered, 2 * kMiB);
}

TEST(EstimateByHand, SixteenBitsWriteTheResultToo) {
  const ModelDesc model = {{{"unit", {{DType::bf16, kMiB, true}, {DType::bf16, kMiB, false}}}}};
  EXPECT_EQ(of("zero3", two_by_two(), {}, model).updated, kMiB / 4 * 30);
}

TEST(EstimateByHand, Computation) {
  const Cluster cluster = two_by_two();
  const Estimate by_tokens = of("zero0", cluster, {.micro_batches = 2, .tokens = 100});
  EXPECT_DOUBLE_EQ(by_tokens.computing, 2 * 6.0 * kMiB * 100 / 1e12);
  const Estimate by_seconds = of("zero0", cluster, {.micro_batches = 2, .compute_seconds = 3});
  EXPECT_DOUBLE_EQ(by_seconds.computing, 6);
  EXPECT_DOUBLE_EQ(by_seconds.with_overlap(), 6 + by_seconds.updating);
}

TEST(Estimate, OneDeviceMovesNothing) {
  Cluster cluster = two_by_two();
  cluster.nodes = cluster.devices_per_node = 1;
  for (const Plan& plan : strategies_for(cluster)) {
    const Result<Estimate> got = estimate(plan, one_unit(), cluster, {});
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->between, LinkCost()) << plan.name;
    EXPECT_EQ(got->inside, LinkCost()) << plan.name;
  }
}

// No message where no byte goes, and the other way round.
TEST(Estimate, MessagesWhereBytesAre) {
  for (const auto& [nodes, devices] : {std::pair{1u, 4u}, {4u, 1u}, {4u, 4u}, {3u, 6u}}) {
    Cluster cluster = two_by_two();
    cluster.nodes = nodes;
    cluster.devices_per_node = devices;
    for (const Plan& plan : strategies_for(cluster)) {
      SCOPED_TRACE(plan.name);
      const Result<Estimate> got = estimate(plan, one_unit(), cluster, {});
      ASSERT_TRUE(got.ok()) << got.error().info().what;
      EXPECT_EQ(got->between.bytes > 0, got->between.messages > 0);
      EXPECT_EQ(got->inside.bytes > 0, got->inside.messages > 0);
    }
  }
}

TEST(Estimate, RefusesContradictions) {
  Cluster cluster = two_by_two();
  const Plan plan = *preset("zero3");
  expect_error(estimate(plan, one_unit(), cluster, {.tokens = 1, .compute_seconds = 1}),
               MERON_E_ARGUMENT, "given twice");
  expect_error(estimate(plan, one_unit(), cluster, {.compute_seconds = -1}), MERON_E_ARGUMENT,
               "computation takes -1 s");
  cluster.flops = 0;
  expect_error(estimate(plan, one_unit(), cluster, {.tokens = 1}), MERON_E_ARGUMENT,
               "how fast a device computes", "device.flops");
  expect_error(estimate(plan, one_unit(), cluster, {.micro_batches = 0}), MERON_E_ARGUMENT,
               "micro_batches");
}

TEST(Strategies, AllTablesParseAndHaveNamesOfTheirOwn) {
  Cluster cluster = two_by_two();
  cluster.nodes = cluster.devices_per_node = 4;
  std::vector<std::string> names;
  for (const Plan& plan : strategies_for(cluster)) names.push_back(plan.name);
  // zero0 to zero3; mics of 2, 4 and 8; hpz and zeropp; the hybrids.
  EXPECT_EQ(names.size(), 4u + 3 + 2 + 8);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Strategies, EachIsAPresetByItsName) {
  Cluster cluster = two_by_two();
  cluster.nodes = cluster.devices_per_node = 4;
  for (const Plan& plan : strategies_for(cluster)) {
    const Result<Plan> named = preset(plan.name);
    ASSERT_TRUE(named.ok()) << plan.name << ": " << named.error().info().what;
    EXPECT_TRUE(*named == plan) << plan.name;
  }
  EXPECT_FALSE(preset("zero3 by").ok());
}

// ---- Rankings -----------------------------------------------------------------------------------

ModelDesc layers() {
  return *model_from_size(1'000'000'000, 24, DType::bf16);
}

Cluster many(double rate) {
  return {.name = "8 x 8",
          .nodes = 8,
          .devices_per_node = 8,
          .between = {rate, 1e-5},
          .inside = {3e11, 5e-6},
          .memory = 80e9,
          .memory_rate = 3e12,
          .flops = 4e14};
}

Ranking ranked(const Cluster& cluster, const ClusterLoad& load = {}) {
  const Result<Ranking> got = rank_strategies(layers(), cluster, load);
  EXPECT_TRUE(got.ok()) << got.error().info().what;
  return *got;
}

const Estimate& named(const Ranking& ranking, std::string_view name) {
  for (const Estimate& cost : ranking.estimates) {
    if (cost.plan.name == name) return cost;
  }
  ADD_FAILURE() << name;
  return ranking.estimates.front();
}

std::string text_of(const Ranking& ranking) {
  std::string out;
  for (const std::string& sentence : explain(ranking)) out += sentence + '\n';
  return out;
}

TEST(Ranking, OnASlowLinkWhatSendsLessWins) {
  const Ranking got = ranked(many(1e9));
  const Estimate& first = got.estimates.front();
  EXPECT_TRUE(first.lossy) << first.plan.name;
  EXPECT_GT(named(got, "zero3").middle(), 5 * first.middle());
  EXPECT_GT(named(got, "zero3").middle(), 2 * named(got, "mics(8)").middle());
  EXPECT_GT(named(got, "hpz").middle(), 2 * named(got, "zeropp").middle());
  EXPECT_THAT(text_of(got), HasSubstr("Its limit is a node's link to the others"));
  EXPECT_THAT(text_of(got), HasSubstr("rounds values"));
  EXPECT_THAT(text_of(got), HasSubstr("The runner-up, "));
}

TEST(Ranking, OnAFastLinkTheyWinByLess) {
  const ClusterLoad load = {.tokens = 4096};
  const auto gain = [&](double rate) {
    const Ranking got = ranked(many(rate), load);
    return named(got, "zero3").middle() / got.estimates.front().middle();
  };
  const double slow = gain(1e9), fast = gain(1e11), very_fast = gain(1e13);
  EXPECT_GT(slow, 2 * fast);
  EXPECT_GT(fast, very_fast);
  EXPECT_LT(very_fast, 1.5);
}

TEST(Ranking, OnOneNodeAMeshOfNodesChangesNothing) {
  Cluster cluster = many(0);
  cluster.nodes = 1;
  cluster.between = {};
  const Ranking got = ranked(cluster);
  for (const char* name : {"hpz", "zeropp"}) {
    Estimate same = named(got, name);
    same.plan = named(got, "zero3").plan;
    EXPECT_EQ(same, named(got, "zero3")) << name;
  }
  EXPECT_FALSE(named(got, "zeropp").lossy);
}

TEST(Ranking, WhatDoesNotFitComesLastAndSaysByHowMuch) {
  Cluster cluster = many(1e9);
  cluster.memory = 4e9;
  cluster.reserved = 1e9;
  const Ranking got = ranked(cluster);
  EXPECT_TRUE(got.estimates.front().memory.fits());
  const Estimate& last = got.estimates.back();
  EXPECT_EQ(last.plan.name, "zero0");
  EXPECT_EQ(last.memory.lacking(), last.memory.total() - 3'000'000'000);
  for (size_t i = 1; i < got.estimates.size(); ++i) {
    EXPECT_GE(got.estimates[i].memory.lacking(), got.estimates[i - 1].memory.lacking());
  }
  EXPECT_THAT(text_of(got), HasSubstr("do not fit: "));
  EXPECT_THAT(to_table(got), HasSubstr("lacks "));

  cluster.memory = 1e6;
  cluster.reserved = 0;
  EXPECT_THAT(text_of(ranked(cluster)), testing::StartsWith("None of the "));
}

TEST(Ranking, TiersThatAreNotUsedAreNoted) {
  Cluster cluster = many(1e9);
  EXPECT_THAT(to_table(ranked(cluster)), testing::Not(HasSubstr("note:")));
  cluster.nvme = TierSpeed{1e9, 1e9};
  EXPECT_THAT(to_table(ranked(cluster)), HasSubstr("note: the cluster's \"nvme\" is not used"));
}

TEST(Ranking, JsonHasTheSameOrder) {
  const Ranking ranking = ranked(many(1e10), {.micro_batches = 2, .compute_seconds = 0.5});
  const nlohmann::json got = nlohmann::json::parse(to_json(ranking));
  ASSERT_EQ(got["strategies"].size(), ranking.estimates.size());
  for (size_t i = 0; i < ranking.estimates.size(); ++i) {
    const auto& strategy = got["strategies"][i];
    const Estimate& cost = ranking.estimates[i];
    EXPECT_EQ(strategy["name"], cost.plan.name);
    EXPECT_EQ(strategy["between_nodes"]["traffic"]["bytes"], cost.between.bytes);
    EXPECT_EQ(strategy["no_overlap"]["exposed"]["seconds"], cost.without_overlap() - 1);
    const Result<Plan> plan = parse_plan(strategy["plan"].dump());
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(*plan, cost.plan);
  }
}

TEST(Ranking, AnEmptyModelTakesNoTime) {
  const Result<Ranking> got = rank_strategies({}, many(1e9), {});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->estimates.front().without_overlap(), 0);
  EXPECT_THAT(to_table(*got), HasSubstr("Nothing takes any time"));
}

}  // namespace
}  // namespace meron::planning
