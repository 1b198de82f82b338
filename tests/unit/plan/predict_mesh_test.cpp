// SPDX-License-Identifier: Apache-2.0
// Predictions over meshes, nodes and codecs.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>

#include "enumerate.h"
#include "expect_error.h"
#include "plan/plan_json.h"
#include "plan/predict.h"

namespace meron {
namespace {

constexpr Sharding kShardings[] = {Sharding::none, Sharding::shard, Sharding::world};

// Of parameters and gradients. A limit makes room for bf16.
constexpr Codec kCodecs[] = {
    {},
    {.kind = CodecKind::bf16},
    {.kind = CodecKind::int8},
    {.kind = CodecKind::int8, .block = 64, .error_limit = 0.5},
    {.kind = CodecKind::int4, .block = 128, .error_limit = 0.25},
    {.kind = CodecKind::int4, .block = 2048},
};

ModelDesc flat_of(uint64_t elements, DType dtype = DType::f32) {
  return {{{"unit", {{dtype, elements, true}}}}};
}

// Odd sizes: nothing, less than a block, a few, enough for all ranks.
ModelDesc small_model(std::mt19937_64& random) {
  constexpr uint64_t kSizes[] = {0, 1, 255, 256, 257, 700, 1025, 3001, 9000};
  ModelDesc out;
  for (uint64_t units = 1 + random() % 3; units > 0; --units) {
    UnitDesc unit{"u", {}};
    for (uint64_t flats = random() % 4; flats > 0; --flats) {
      unit.flats.push_back({static_cast<DType>(random() % 3), kSizes[random() % std::size(kSizes)],
                            random() % 4 != 0});
    }
    out.units.push_back(std::move(unit));
  }
  return out;
}

std::string said(const Prediction& got, uint32_t rank) {
  return to_json(got.plan, -1) + " ranks " + std::to_string(got.workload.ranks) + " node " +
         std::to_string(got.workload.node) + " rank " + std::to_string(rank);
}

void expect_enumerated(const Prediction& got, const ModelDesc& model) {
  test::Enumerator counted(got.plan, got.workload, got.mesh.shards);
  ASSERT_EQ(got.ranks.size(), got.workload.ranks);
  for (uint32_t r = 0; r < got.workload.ranks; ++r) {
    const RankPrediction& rank = got.ranks[r];
    const RankPrediction expected = counted.of(model, r);
    ASSERT_EQ(rank.memory.param, expected.memory.param) << said(got, r);
    ASSERT_EQ(rank.memory.secondary_partition, expected.memory.secondary_partition) << said(got, r);
    ASSERT_EQ(rank.memory.gradient_buckets, expected.memory.gradient_buckets) << said(got, r);
    ASSERT_EQ(rank.memory.reduced_gradient, expected.memory.reduced_gradient) << said(got, r);
    ASSERT_EQ(rank.memory.feedback, expected.memory.feedback) << said(got, r);
    ASSERT_EQ(rank.memory.moments, expected.memory.moments) << said(got, r);
    ASSERT_EQ(rank.memory.master, expected.memory.master) << said(got, r);
    ASSERT_EQ(rank.links.gather_mapped, expected.links.gather_mapped) << said(got, r);
    ASSERT_EQ(rank.links.gather_copied, expected.links.gather_copied) << said(got, r);
    ASSERT_EQ(rank.links.reduce, expected.links.reduce) << said(got, r);
    ASSERT_EQ(rank.links.inter_node_gather, expected.links.inter_node_gather) << said(got, r);
    ASSERT_EQ(rank.links.inter_node_reduce, expected.links.inter_node_reduce) << said(got, r);
    ASSERT_EQ(rank, expected) << said(got, r);
  }
}

class EveryPlan : public testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  Plan plan() const {
    const auto [param, gradient, optimizer] = GetParam();
    Plan plan;
    plan.param.sharding = kShardings[param];
    plan.gradient.sharding = kShardings[gradient];
    plan.optimizer.sharding = kShardings[optimizer];
    return plan;
  }
};

TEST_P(EveryPlan, CostsWhatCountingGives) {
  std::mt19937_64 random(17);
  std::map<uint64_t, int> compared;  // by the number of replicas
  Plan plan = this->plan();
  for (const uint32_t shard : {Mesh::kAll, Mesh::kNode, 1u, 2u, 3u, 4u, 8u}) {
    for (const Codec& param : kCodecs) {
      for (const Codec& gradient : kCodecs) {
        plan.mesh.shard = shard;
        plan.param.codec = param;
        plan.gradient.codec = gradient;
        plan.gradient.codec.feedback = gradient.blocked() && random() % 2 == 0;
        plan.param.secondary_partition =
            plan.param.sharding == Sharding::world && random() % 2 == 0;
        plan.param.codec.difference = param.blocked() && random() % 2 == 0;
        if (!validate(plan).ok()) plan.param.codec.difference = false;
        plan.param.frozen_int8 = random() % 2 == 0;
        if (!validate(plan).ok()) plan.param.frozen_int8 = false;
        if (!validate(plan).ok()) continue;
        plan.gradient.dtype.reset();
        if (random() % 2 == 0) plan.gradient.dtype = static_cast<DType>(random() % 3);
        plan.gradient.rounds = !plan.gradient.dtype && random() % 4 == 0;
        plan.gradient.buckets = static_cast<uint32_t>(1 + random() % 3);
        for (const uint32_t ranks : {1u, 2u, 3u, 4u, 6u, 8u, 12u}) {
          for (const uint32_t node : {0u, 1u, 2u, 3u, 4u, 5u, 16u}) {
            const ModelDesc model = small_model(random);
            const Workload load{.ranks = ranks,
                                .micro_batches = static_cast<uint32_t>(1 + random() % 3),
                                .gathers_per_micro_batch = static_cast<uint32_t>(1 + random() % 3),
                                .node = node};
            const Result<Prediction> got = predict(plan, model, load);
            if (!got) continue;  // the mesh does not fit: mesh_test.cpp
            ++compared[got->mesh.replicas];
            expect_enumerated(*got, model);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
  const bool possible =
      is_sharded(plan.optimizer) || (!is_sharded(plan.param) && !is_sharded(plan.gradient));
  const bool narrow = plan.param.sharding > plan.optimizer.sharding ||
                      plan.gradient.sharding > plan.optimizer.sharding;
  if (!possible || narrow) {
    EXPECT_TRUE(compared.empty());
    return;
  }
  EXPECT_GT(compared[1], 20);
  if (!is_sharded(plan.optimizer)) return;
  for (const uint64_t replicas : {2, 3, 4, 6, 12}) EXPECT_GT(compared[replicas], 5) << replicas;
}

INSTANTIATE_TEST_SUITE_P(Shardings, EveryPlan,
                         testing::Combine(testing::Range(0, 3), testing::Range(0, 3),
                                          testing::Range(0, 3)));

// 2048 f32 over 2 nodes of 2 ranks: rows of 1024, parts of 512.
TEST(PredictMeshByHand, HpzBringsInOnceAStep) {
  const Result<Prediction> got =
      predict(*preset("hpz(2)"), flat_of(2048), {.ranks = 4, .micro_batches = 3, .node = 2});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->mesh, (MeshShape{.shards = 2, .replicas = 2}));
  for (const RankPrediction& rank : got->ranks) {
    EXPECT_EQ(rank.memory.param, 512u * 4);
    EXPECT_EQ(rank.memory.secondary_partition, 512u * 4);
    EXPECT_EQ(rank.memory.gradient_buckets, 2u * (8192 + 4096));  // and the sum of the row
    EXPECT_EQ(rank.memory.reduced_gradient, 4096u);
    EXPECT_EQ(rank.memory.moments, 2u * 4096);
    EXPECT_EQ(rank.links.gather_mapped, 6u * 1024 * 4);
    EXPECT_EQ(rank.links.gather_copied, 512u * 4);
    EXPECT_EQ(rank.links.inter_node_gather, 512u * 4);
    EXPECT_EQ(rank.links.reduce, 3u * (1024 + 512) * 4);
    EXPECT_EQ(rank.links.inter_node_reduce, 3u * 512 * 4);
  }
}

// The same in 8 and 4 bits: 512 elements are 2 blocks of 256 and their scales.
TEST(PredictMeshByHand, ZeroppTravelsEncoded) {
  const Result<Prediction> got =
      predict(*preset("zeropp(2)"), flat_of(2048), {.ranks = 4, .node = 2});
  ASSERT_TRUE(got.ok());
  for (const RankPrediction& rank : got->ranks) {
    EXPECT_EQ(rank.memory.param, 512u * 4 + 4096 + 4096);  // decoded, exact, encoded
    EXPECT_EQ(rank.memory.secondary_partition, 512u * 4);
    EXPECT_EQ(rank.memory.gradient_buckets, 2u * (8192 + 4096 + 4096));
    EXPECT_EQ(rank.memory.feedback, 4096u);
    EXPECT_EQ(rank.links.inter_node_gather, 2u * (256 + 4));
    EXPECT_EQ(rank.links.inter_node_reduce, 2u * (128 + 4));
    EXPECT_EQ(rank.links.reduce, 1024u * 4 + 2 * (128 + 4));
  }
}

// MiCS gathers within a group alone, and synchronizes groups once an accumulation.
TEST(PredictMeshByHand, MicsLeavesItsGroupAtTheBoundaryOnly) {
  const Result<Prediction> got =
      predict(*preset("mics(2)"), flat_of(2048), {.ranks = 4, .micro_batches = 5, .node = 2});
  ASSERT_TRUE(got.ok());
  for (const RankPrediction& rank : got->ranks) {
    EXPECT_EQ(rank.memory.param, 1024u * 4);
    EXPECT_EQ(rank.memory.secondary_partition, 0u);
    EXPECT_EQ(rank.links.inter_node_gather, 0u);
    EXPECT_EQ(rank.links.gather_copied, 0u);
    EXPECT_EQ(rank.links.gather_mapped, 10u * 1024 * 4);
    EXPECT_EQ(rank.links.inter_node_reduce,
              (512u + 512) * 4);  // its part of the other's, and its sum
    EXPECT_EQ(rank.links.reduce, 5u * 1024 * 4 + (512 + 512) * 4);
  }
}

// Together, a node takes each byte of another one's once.
TEST(PredictMeshByHand, ANodeBringsInEachByteOnce) {
  constexpr uint64_t kElements = 4096;
  for (const uint32_t node : {1u, 2u, 4u}) {
    const Result<Prediction> got =
        predict(*preset("zero3"), flat_of(kElements),
                {.ranks = 8, .gathers_per_micro_batch = 1, .node = node});
    ASSERT_TRUE(got.ok());
    for (uint32_t first = 0; first < 8; first += node) {
      uint64_t bytes = 0;
      for (uint32_t r = first; r < first + node; ++r)
        bytes += got->ranks[r].links.inter_node_gather;
      EXPECT_EQ(bytes, (kElements - kElements / 8 * node) * 4);
    }
  }
}

TEST(PredictMeshByHand, OnOneNodeNothingIsInterNode) {
  for (const std::string_view name : {"zero3", "mics(2)", "hpz(2)", "zeropp(2)"}) {
    for (const uint32_t node : {0u, 4u, 100u}) {
      const Result<Prediction> got =
          predict(*preset(name), flat_of(5000), {.ranks = 4, .node = node});
      ASSERT_TRUE(got.ok()) << name;
      EXPECT_EQ(got->total.links.inter_node_gather, 0u) << name;
      EXPECT_EQ(got->total.links.inter_node_reduce, 0u) << name;
      EXPECT_EQ(got->total.memory.secondary_partition, 0u) << name;
    }
  }
}

// No rank updates the frozen parameters of replicas, so no rank fetches them.
TEST(PredictMeshByHand, FrozenFlatsAreNotRefreshed) {
  Plan plan = *preset("mics(2)");
  plan.optimizer.sharding = Sharding::world;
  const ModelDesc frozen = {{{"unit", {{DType::f32, 2048, false}}}}};
  const Result<Prediction> got = predict(plan, frozen, {.ranks = 4, .node = 2});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->total.links.gather_copied, 0u);
  EXPECT_EQ(got->total.links.inter_node_gather, 0u);
}

TEST(PredictMeshByHand, FrozenFlatsAreCopiedOnce) {
  const ModelDesc frozen = {{{"unit", {{DType::f32, 2048, false}}}}};
  const Result<Prediction> got = predict(*preset("hpz(2)"), frozen, {.ranks = 4, .node = 2});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->total.memory.secondary_partition, 4u * 512 * 4);
  EXPECT_EQ(got->total.links.gather_copied, 0u);
  EXPECT_EQ(got->total.links.inter_node_gather, 0u);
}

// Values without a base for a difference need space for 16 bits; everything else is as without the
// option.
TEST(PredictMeshByHand, DifferencesTravelInAsManyBytes) {
  Plan plan = *preset("zeropp(2)");
  const Workload load{.ranks = 4, .node = 2};
  const Result<Prediction> whole = predict(plan, flat_of(65536), load);
  plan.param.codec.difference = true;
  const Result<Prediction> difference = predict(plan, flat_of(65536), load);
  ASSERT_TRUE(whole.ok() && difference.ok());
  for (uint32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(difference->ranks[r].links, whole->ranks[r].links);
    EXPECT_EQ(difference->ranks[r].memory.param, 16384u * 4 + 16384 * 4 + 16384 * 2);
    EXPECT_EQ(whole->ranks[r].memory.param, 16384u * 4 + 16384 * 4 + 5 * 4096);  // 64 blocks
  }
}

// As many ranks as there may be, by nodes of any size: the work grows with the ranks, not with
// their square, which would take minutes.
TEST(PredictMesh, OfTheMostRanks) {
  for (const std::string_view name : {"zero0", "zero1", "zero3", "mics(1)", "mics(256)", "hpz(256)",
                                      "zeropp(65536)", "mics", "zeropp"}) {
    for (const uint32_t node : {1u, 256u, 32768u, kMaxPlanRanks}) {
      const Result<Prediction> got =
          predict(*preset(name), flat_of(1 << 30), {.ranks = kMaxPlanRanks, .node = node});
      ASSERT_TRUE(got.ok()) << name << node;
      EXPECT_EQ(got->ranks.size(), kMaxPlanRanks);
    }
  }
}

TEST(PredictMeshErrors, NameWhatDoesNotFit) {
  const ModelDesc model = flat_of(100);
  expect_error(predict(*preset("mics(4)"), model, {.ranks = 6, .node = 2}), MERON_E_ARGUMENT,
               "plan 'mics(4)' has a shard axis of 4 ranks, which does not divide the 6 ranks");
  expect_error(predict(*preset("mics(2)"), model, {.ranks = 6, .node = 3}), MERON_E_ARGUMENT,
               "a shard axis of 2 ranks, and a node has 3");
  expect_error(predict(*preset("hpz(2)"), model, {.ranks = 6, .node = 4}), MERON_E_ARGUMENT,
               "6 ranks, which do not fill nodes of 4");
  expect_error(predict(*preset("hpz"), model, {.ranks = 6, .node = 4}), MERON_E_ARGUMENT,
               "a shard axis of 4 ranks, which does not divide the 6 ranks");
  expect_error(predict(*preset("zero3"), model, {.ranks = 2, .node = kMaxPlanRanks + 1}),
               MERON_E_ARGUMENT, "ranks_per_node is 65537, outside 1 to 65536");
}

TEST(PredictMeshPrint, JsonHasWhatGoesBetweenNodes) {
  const Result<Prediction> got =
      predict(*preset("zeropp(2)"), flat_of(2048), {.ranks = 4, .node = 2});
  ASSERT_TRUE(got.ok());
  const auto json = nlohmann::json::parse(to_json(*got));
  EXPECT_EQ(*parse_plan(json["plan"].dump()), *preset("zeropp(2)"));
  EXPECT_EQ(json["workload"]["ranks_per_node"], 2);
  for (size_t r = 0; r < 4; ++r) {
    const auto& memory = json["ranks"][r]["memory"]["host"];
    const auto& inter_node = json["ranks"][r]["links"]["between_nodes"];
    EXPECT_EQ(memory["secondary_partition"]["bytes"], got->ranks[r].memory.secondary_partition);
    EXPECT_EQ(memory["feedback"]["bytes"], got->ranks[r].memory.feedback);
    EXPECT_EQ(inter_node["gather"]["bytes"], got->ranks[r].links.inter_node_gather);
    EXPECT_EQ(inter_node["reduce"]["bytes"], got->ranks[r].links.inter_node_reduce);
  }
  const auto alone = nlohmann::json::parse(to_json(*predict(*preset("zero3"), {}, {.ranks = 3})));
  EXPECT_EQ(alone["workload"]["ranks_per_node"], 3);
}

TEST(PredictMeshPrint, TableHasOneMoreForOtherNodes) {
  const Result<Prediction> got = predict(*preset("hpz(2)"), flat_of(2048), {.ranks = 4, .node = 2});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(to_table(*got),
            "plan hpz(2): 4 ranks, 1 unit, 2048 of 2048 elements trainable\n"
            "\n"
            "memory per rank, tier host\n"
            "rank     param   gradient  optimizer      total\n"
            "0-3    4.0 KiB   28.0 KiB    8.0 KiB   40.0 KiB\n"
            "all   16.0 KiB  112.0 KiB   32.0 KiB  160.0 KiB\n"
            "\n"
            "bytes from peers per rank and optimizer step (1 micro-batch, 2 gathers each)\n"
            "rank  gather in place  gather by copy    reduce\n"
            "0-3           8.0 KiB         2.0 KiB   6.0 KiB\n"
            "all          32.0 KiB         8.0 KiB  24.0 KiB\n"
            "\n"
            "of these, from other nodes (2 ranks a node)\n"
            "rank   gather   reduce  together\n"
            "0-3   2.0 KiB  2.0 KiB   4.0 KiB\n"
            "all   8.0 KiB  8.0 KiB  16.0 KiB\n");
}

}  // namespace
}  // namespace meron
