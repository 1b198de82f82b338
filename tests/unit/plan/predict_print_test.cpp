// SPDX-License-Identifier: Apache-2.0
// What predict() refuses, and predictions as text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "plan/plan_json.h"
#include "predict_model.h"

namespace meron {
namespace {

TEST(PredictWorkload, MicroBatchesCostOnlyWhereTheyCommunicate) {
  const ModelDesc model = one_flat(100'000);
  const auto step = [&](std::string_view plan, uint32_t micro_batches) {
    return ranks_of(plan, model, {.ranks = 4, .micro_batches = micro_batches})[1].links;
  };
  EXPECT_EQ(step("zero0", 3), step("zero0", 1));
  EXPECT_EQ(step("zero1", 3), step("zero1", 1));
  EXPECT_EQ(step("zero2", 3).reduce, 3 * step("zero2", 1).reduce);
  EXPECT_EQ(step("zero2", 3).gather_copied, step("zero2", 1).gather_copied);
  EXPECT_EQ(step("zero3", 3).gather_mapped, 3 * step("zero3", 1).gather_mapped);
}

TEST(PredictErrors, WorkloadAndPlan) {
  const ModelDesc model = one_flat(32);
  const Plan plan = *preset("zero1");
  expect_error(predict(plan, model, {.ranks = 0}), MERON_E_ARGUMENT,
               "ranks is 0, outside 1 to 65536");
  expect_error(predict(plan, model, {.ranks = kMaxPlanRanks + 1}), MERON_E_ARGUMENT,
               "ranks is 65537");
  expect_error(predict(plan, model, {.micro_batches = 0}), MERON_E_ARGUMENT, "micro_batches is 0");
  expect_error(predict(plan, model, {.micro_batches = UINT32_MAX}), MERON_E_ARGUMENT,
               "micro_batches");
  expect_error(predict(plan, model, {.gathers_per_micro_batch = 0}), MERON_E_ARGUMENT,
               "gathers_per");
  expect_error(predict(plan, model, {.optimizer_states = 3}), MERON_E_ARGUMENT,
               "optimizer_states is 3, outside 0 to 2");
  EXPECT_EQ(predict(plan, model, {.optimizer_states = 0})->ranks[0].memory.moments, 0);
  Plan invalid = plan;
  invalid.gradient.buckets = 0;
  expect_error(predict(invalid, model, {}), MERON_E_ARGUMENT, "gradient_buckets is 0");
}

TEST(PredictErrors, AbsurdSizes) {
  const Plan plan = *preset("zero0");
  expect_error(predict(plan, one_flat(kMaxElements + 1), {}), MERON_E_ARGUMENT,
               "more than the limit");
  expect_error(predict(plan, one_flat(UINT64_MAX), {}), MERON_E_ARGUMENT, "more than the limit");
  EXPECT_TRUE(predict(plan, one_flat(kMaxElements), {.ranks = 2}).ok());
  // Sums that pass 64 bits: over the flats, over the ranks, over the gathers.
  ModelDesc many;
  for (int i = 0; i < 1 << 14; ++i) many.units.push_back({"u", {{DType::f32, kMaxElements, true}}});
  expect_error(predict(plan, many, {}), MERON_E_ARGUMENT, "more bytes than 64 bits");
  expect_error(predict(plan, one_flat(kMaxElements), {.ranks = kMaxPlanRanks}), MERON_E_ARGUMENT,
               "more bytes than 64 bits");
  expect_error(predict(*preset("zero3"), one_flat(kMaxElements),
                       {.ranks = 2, .micro_batches = 1 << 20, .gathers_per_micro_batch = 1 << 10}),
               MERON_E_ARGUMENT, "more bytes than 64 bits");
  many.units.resize(1);
  for (int i = 0; i < 1 << 14; ++i) many.units[0].flats.push_back({DType::f32, kMaxElements, true});
  expect_error(predict(*preset("zero2"), many, {}), MERON_E_ARGUMENT, "more bytes than 64 bits");
}

TEST(PredictPrint, JsonHasExactBytesAndHumanSizes) {
  const Result<Prediction> got =
      predict(*preset("zero3"), one_flat(1000), {.ranks = 3, .micro_batches = 4});
  ASSERT_TRUE(got.ok());
  const auto json = nlohmann::json::parse(to_json(*got));
  EXPECT_EQ(*parse_plan(json["plan"].dump()), *preset("zero3"));
  EXPECT_EQ(json["workload"]["ranks"], 3);
  EXPECT_EQ(json["workload"]["micro_batches"], 4);
  EXPECT_EQ(json["workload"]["gathers_per_micro_batch"], 2);
  EXPECT_EQ(json["model"]["elements"], 1000);
  ASSERT_EQ(json["ranks"].size(), 3u);
  for (size_t r = 0; r < 3; ++r) {
    const auto& memory = json["ranks"][r]["memory"]["host"];
    const auto& links = json["ranks"][r]["links"]["shm"];
    const RankPrediction& rank = got->ranks[r];
    EXPECT_EQ(json["ranks"][r]["rank"], r);
    EXPECT_EQ(memory["param"]["bytes"], rank.memory.param);
    EXPECT_EQ(memory["gradient"]["bytes"], rank.memory.gradient());
    EXPECT_EQ(memory["gradient_buckets"]["bytes"], rank.memory.gradient_buckets);
    EXPECT_EQ(memory["reduced_gradient"]["bytes"], rank.memory.reduced_gradient);
    EXPECT_EQ(memory["optimizer"]["bytes"], rank.memory.optimizer());
    EXPECT_EQ(memory["moments"]["bytes"], rank.memory.moments);
    EXPECT_EQ(memory["master"]["bytes"], rank.memory.master);
    EXPECT_EQ(memory["total"]["bytes"], rank.memory.total());
    EXPECT_EQ(links["gather_mapped"]["bytes"], rank.links.gather_mapped);
    EXPECT_EQ(links["gather_copied"]["bytes"], rank.links.gather_copied);
    EXPECT_EQ(links["reduce"]["bytes"], rank.links.reduce);
  }
  EXPECT_EQ(json["ranks"][0]["memory"]["host"]["param"]["human"], "2.0 KiB");
  EXPECT_EQ(json["peak"]["host"]["bytes"], got->peak_host);
  EXPECT_EQ(json["total"]["memory"]["host"]["total"]["bytes"], got->total.memory.total());
}

TEST(PredictPrint, TableFoldsEqualRanks) {
  const Result<Prediction> got = predict(*preset("zero3"), one_flat(1100), {.ranks = 5});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(to_table(*got),
            "plan zero3: 5 ranks, 1 unit, 1100 of 1100 elements trainable\n"
            "\n"
            "memory per rank, tier host\n"
            "rank    param   gradient  optimizer      total\n"
            "0-3   1.0 KiB   20.0 KiB    8.0 KiB   29.0 KiB\n"
            "4       304 B   20.0 KiB    8.0 KiB   28.3 KiB\n"
            "all   4.3 KiB  100.0 KiB   40.0 KiB  144.3 KiB\n"
            "\n"
            "bytes from peers per rank and optimizer step (1 micro-batch, 2 gathers each)\n"
            "rank  gather in place  gather by copy    reduce\n"
            "0-3           6.6 KiB             0 B   4.0 KiB\n"
            "4             8.0 KiB             0 B   1.2 KiB\n"
            "all          34.4 KiB             0 B  17.2 KiB\n");
}

// As a run of it logs them: where there is one replica, no codec is used.
TEST(PredictPrint, WarnsOfCodecsThatCostAccuracy) {
  const Plan plan = *parse_plan(R"j({"preset": "mics(2)", "gradient": {"codec": "int4"}})j");
  const Result<Prediction> two = predict(plan, one_flat(1000), {.ranks = 4, .node = 2});
  ASSERT_TRUE(two.ok());
  const auto warnings = nlohmann::json::parse(to_json(*two)).at("warnings");
  ASSERT_EQ(warnings.size(), 1u);
  const auto text = warnings[0].get<std::string>();
  EXPECT_NE(text.find("gradients travel in int4"), std::string::npos) << text;
  EXPECT_NE(to_table(*two).find(text), std::string::npos);

  const Result<Prediction> one = predict(plan, one_flat(1000), {.ranks = 2, .node = 2});
  ASSERT_TRUE(one.ok());
  EXPECT_FALSE(nlohmann::json::parse(to_json(*one)).contains("warnings"));
}

}  // namespace
}  // namespace meron
