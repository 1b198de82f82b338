// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <gtest/gtest.h>

#include "plan/plan_json.h"
#include "predict_model.h"

namespace meron {
namespace {

// Without a mesh, on one node.
struct Held {
  uint64_t param, gradient_buckets, reduced_gradient, moments, master;
};
struct Moved {
  uint64_t gather_mapped, gather_copied, reduce;
};

RankPrediction expected(const Held& held, const Moved& moved) {
  return {.memory = {.param = held.param,
                     .gradient_buckets = held.gradient_buckets,
                     .reduced_gradient = held.reduced_gradient,
                     .moments = held.moments,
                     .master = held.master},
          .links = {.gather_mapped = moved.gather_mapped,
                    .gather_copied = moved.gather_copied,
                    .reduce = moved.reduce},
          .nvme = {},
          .device = {}};
}

// Written down by hand. 1000 elements over 3 ranks: a shard is 334 rounded up to 512, so the ranks
// own 512, 488 and 0. A page is 4096 bytes; 4000 bytes take one, 2048 and 1952 too.
TEST(PredictByHand, F32OverThreeRanksZero0) {
  EXPECT_EQ(ranks_of("zero0", one_flat(1000), {.ranks = 3, .micro_batches = 4}),
            (std::vector<RankPrediction>{
                // The sum is formed in place in the bucket; moments are 2 pages of 4000 bytes.
                // Reduce: 2 peers * 512 * 4 read, then 488 sums of the others.
                expected({4096, 4096, 0, 8192, 0}, {0, 0, 2 * 512 * 4 + 488 * 4}),
                expected({4096, 4096, 0, 8192, 0}, {0, 0, 2 * 488 * 4 + 512 * 4}),
                expected({4096, 4096, 0, 8192, 0}, {0, 0, 1000 * 4}),
            }));
}

// 10,000 elements in bf16 over 2 ranks: they own 5120 and 4880. One half of these is on nvme, and
// the other, rounded down to blocks of 256, on the host: 2560 and 2304.
TEST(PredictByHand, AnOptimizerOnBothTiers) {
  Plan plan = *preset("zero3");
  plan.optimizer.tier = Tier::nvme;
  plan.nvme.path = "/local";
  plan.optimizer.fraction = 0.5;
  plan.optimizer.dtype = StateDType::int8;
  plan.optimizer.sub_group = 4096;
  plan.optimizer.buffers = 3;
  const ModelDesc model = {{{"unit", {{DType::bf16, 10'000, true}}}}};
  const Result<Prediction> got = predict(plan, model, {.ranks = 2});
  ASSERT_TRUE(got.ok());
  const RankPrediction& first = got->ranks[0];
  // Two states of 2560 codes and 10 scales, and the f32 master.
  EXPECT_EQ(first.memory.moments, 2u * 4096);
  EXPECT_EQ(first.memory.master, 3u * 4096);
  // On nvme 4 + 1 + 1 bytes and two times 10 scales: 15,440 bytes.
  EXPECT_EQ(first.nvme, (NvmePrediction{.optimizer = 16'384, .read = 16'384, .written = 16'384}));
  EXPECT_EQ(first.memory.state_buffers, 3u * 16'384);
  const RankPrediction& second = got->ranks[1];
  EXPECT_EQ(second.memory.moments, 2u * 4096);
  EXPECT_EQ(second.nvme.read, 16'384u);  // 2576 elements: 15,544 bytes
  EXPECT_EQ(got->total.nvme.optimizer, 2u * 16'384);
}

TEST(PredictByHand, StatesOnNvmeMoveTwentyFourBytesPerParameter) {
  Plan plan = *preset("zero3");
  plan.optimizer.tier = Tier::nvme;
  plan.nvme.path = "/local";
  const ModelDesc model = {{{"unit", {{DType::bf16, uint64_t{64} << 20, true}}}}};
  const auto moved = [&] {
    const RankPrediction rank = predict(plan, model, {.ranks = 1})->ranks[0];
    return static_cast<double>(rank.nvme.read + rank.nvme.written) / (64 << 20);
  };
  EXPECT_EQ(moved(), 24.0);
  plan.optimizer.dtype = StateDType::bf16;
  EXPECT_EQ(moved(), 16.0);
  plan.optimizer.dtype = StateDType::int8;
  EXPECT_EQ(moved(), 12.0625);
  EXPECT_EQ(predict(plan, model, {.ranks = 1, .optimizer_states = 1})->ranks[0].nvme.read,
            (uint64_t{64} << 20) * 5 + (uint64_t{64} << 20) / 256 * 4);
}

TEST(PredictByHand, ParametersOnNvme) {
  Plan plan = *preset("zero3");
  plan.param.tier = Tier::nvme;
  plan.param.buffers = 3;
  plan.nvme.path = "/local";
  const ModelDesc model = {{{"first", {{DType::bf16, 1024, true}}},
                            {"frozen", {{DType::f32, 2048, false}}},
                            {"last", {{DType::f32, 768, true}}}}};
  const Workload load = {.ranks = 2, .micro_batches = 3};
  Result<Prediction> got = predict(plan, model, load);
  ASSERT_TRUE(got.ok());
  // Rank 1 has the halves from the middle on: bytes 1024, 4096 and 2048 of their flats.
  const RankPrediction& second = got->ranks[1];
  EXPECT_EQ(second.memory.param, 0u);
  // Room for three units, and there are three: none is counted twice.
  EXPECT_EQ(second.memory.param_buffers, 1024u + 4096 + 1024);
  EXPECT_EQ(second.memory.optimizer(), got->ranks[1].memory.moments + second.memory.master);
  EXPECT_EQ(second.nvme.param, (1024u + 1024) + 4096 + (2048 + 1024));
  EXPECT_EQ(second.nvme.optimizer, 0u);
  // Six gathers each; the update of what has no master reads it, too.
  EXPECT_EQ(second.nvme.read, 6u * (1024 + 4096 + 1024) + 1024);
  EXPECT_EQ(second.nvme.written, 1024u + 1024);
  EXPECT_EQ(got->ranks[0].nvme.param, 1024u + 4096 + 2048);
  EXPECT_EQ(got->ranks[0].nvme.written, 1024u + 2048);

  // Rank 0 holds 512, 1024 and 512 elements: the last unit fits after the first has been kept.
  plan.param.resident = 1024;
  got = predict(plan, model, load);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ranks[0].memory.param, 1024u + 2048);
  EXPECT_EQ(got->ranks[0].nvme.param, 4096u);
  EXPECT_EQ(got->ranks[1].memory.param, 1024u + 1024);
  EXPECT_EQ(got->ranks[1].nvme.written, 0u);
  EXPECT_EQ(got->ranks[1].memory.param_buffers, 4096u);

  // Of more units than there is room for, the largest.
  plan.param.resident = 0;
  plan.param.buffers = 2;
  got = predict(plan, model, load);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ranks[0].memory.param_buffers, 4096u + 2048);

  // One unit at a time changes; but a unit that a local peer still reads stays beside the next one.
  plan.param.buffers = 1;
  got = predict(plan, model, load);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ranks[0].memory.param_buffers, 4096u + 2048);
  got = predict(plan, model, {.ranks = 2, .micro_batches = 3, .node = 1});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ranks[0].memory.param_buffers, 4096u);
}

// 10,000 elements in bf16 over 2 ranks, which own 5120 and 4880. Values have equal room on both.
TEST(PredictByHand, ShardsOnTheDevice) {
  Plan plan = *preset("zero3");
  plan.param.tier = Tier::device;
  const ModelDesc model = one_flat(10'000, DType::bf16);
  auto got = predict(plan, model, {.ranks = 2});
  ASSERT_TRUE(got.ok());
  // The host updates them, and has their place.
  EXPECT_EQ(got->ranks[0].device, (DevicePrediction{.param = 2u * 5120}));
  EXPECT_EQ(got->ranks[0].memory.param, 2u * 5120);
  EXPECT_GT(got->ranks[0].memory.master, 0u);

  plan.gradient.tier = plan.optimizer.tier = Tier::device;
  got = predict(plan, model, {.ranks = 2});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ranks[0].device,
            (DevicePrediction{.param = 2u * 5120, .gradient = 4u * 5120, .optimizer = 12u * 5120}));
  EXPECT_EQ(got->ranks[1].device,
            (DevicePrediction{.param = 2u * 5120, .gradient = 4u * 4880, .optimizer = 12u * 4880}));
  EXPECT_EQ(got->ranks[0].memory.total(), 0u);
  EXPECT_EQ(got->total.device.total(), 18u * 10'000 + 2u * 240);
  EXPECT_NE(to_table(*got).find("tier device"), std::string::npos);
}

// 10,000 elements in bf16, whole on each of 4 ranks, which update 2560 of them, and the last 2320.
TEST(PredictByHand, FullShardsOnTheDevice) {
  auto plan = parse_plan(R"({"mesh": {"shard": 1},
                             "param": {"sharding": "shard", "tier": "device"},
                             "gradient": {"sharding": "replica x shard", "tier": "device"},
                             "optimizer": {"sharding": "replica x shard", "tier": "device"}})");
  ASSERT_TRUE(plan.ok());
  const auto got = predict(*plan, one_flat(10'000, DType::bf16), {.ranks = 4});
  ASSERT_TRUE(got.ok());
  // Rows have room for four equal parts.
  EXPECT_EQ(
      got->ranks[0].device,
      (DevicePrediction{.param = 2u * 10'240, .gradient = 4u * 2560, .optimizer = 12u * 2560}));
  EXPECT_EQ(got->ranks[3].device.gradient, 4u * 2320);
  // Gradients go to whoever sums them as they are, in 16 bits.
  EXPECT_EQ(got->ranks[0].links.reduce, 3u * 2 * 2560);
  EXPECT_EQ(got->ranks[0].links.gather_copied, 2u * (10'000 - 2560));

  // Sums of several micro-batches are in f32.
  plan->gradient.sharding = Sharding::shard;
  Workload load{.ranks = 4};
  load.micro_batches = 2;
  const auto summed = predict(*plan, one_flat(10'000, DType::bf16), load);
  ASSERT_TRUE(summed.ok());
  EXPECT_EQ(summed->ranks[0].links.reduce, 3u * 4 * 2560);
  EXPECT_EQ(summed->ranks[0].device.gradient, 4u * 10'000);
}

// 10,000 elements in bf16 over 2 groups of 2 ranks: rows of 5120 elements, parts of 2560.
TEST(PredictByHand, SecondaryPartitionOnTheDevice) {
  Plan plan = *preset("hpz(2)");
  plan.param.tier = Tier::device;
  Workload load{.ranks = 4};
  load.node = 2;
  const auto got = predict(plan, one_flat(10'000, DType::bf16), load);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ranks[0].device.param, 2u * (2560 + 5120));
  EXPECT_EQ(got->ranks[0].memory.secondary_partition, 0u);
  // From the other group once a step, however many gathers there are.
  EXPECT_EQ(got->ranks[0].links.inter_node_gather, 2u * 2560);
}

TEST(PredictByHand, TimeOnNvme) {
  Plan plan = *preset("zero3");
  plan.optimizer.tier = plan.param.tier = Tier::nvme;
  plan.nvme = {.path = "/local",
               .rates = {.read = 1'000'000, .write = 500'000, .both = 250'000, .update = 1 << 20}};
  const ModelDesc model = {{{"unit", {{DType::bf16, 1 << 20, true}}}}};
  const Result<Prediction> got = predict(plan, model, {.ranks = 4, .node = 2});
  ASSERT_TRUE(got.ok());
  const NvmeTime time = nvme_time(*got);
  // A node has half of the elements: twelve bytes of states each, four gathers' reads in two.
  EXPECT_DOUBLE_EQ(time.states, 12.0 * (1 << 19) / 250'000);
  EXPECT_DOUBLE_EQ(time.update, 0.5);
  EXPECT_DOUBLE_EQ(time.values, 2.0 * 2 * (1 << 19) / 1'000'000 + 2.0 * (1 << 19) / 500'000);
  EXPECT_DOUBLE_EQ(time.step(), time.states);
  plan.nvme.rates = {};
  EXPECT_DOUBLE_EQ(nvme_time(*predict(plan, model, {.ranks = 4, .node = 2})).step(), 0.0);
}

TEST(PredictByHand, F32OverThreeRanksZero1) {
  EXPECT_EQ(ranks_of("zero1", one_flat(1000), {.ranks = 3, .micro_batches = 4}),
            (std::vector<RankPrediction>{
                expected({4096, 4096, 0, 8192, 0}, {0, 488 * 4, 2 * 512 * 4}),
                expected({4096, 4096, 0, 8192, 0}, {0, 512 * 4, 2 * 488 * 4}),
                expected({4096, 4096, 0, 0, 0}, {0, 1000 * 4, 0}),
            }));
}

TEST(PredictByHand, F32OverThreeRanksZero2) {
  EXPECT_EQ(ranks_of("zero2", one_flat(1000), {.ranks = 3, .micro_batches = 4}),
            (std::vector<RankPrediction>{
                expected({4096, 8192, 4096, 8192, 0}, {0, 488 * 4, 4 * 2 * 512 * 4}),
                expected({4096, 8192, 4096, 8192, 0}, {0, 512 * 4, 4 * 2 * 488 * 4}),
                expected({4096, 8192, 0, 0, 0}, {0, 1000 * 4, 0}),
            }));
}

TEST(PredictByHand, F32OverThreeRanksZero3) {
  EXPECT_EQ(ranks_of("zero3", one_flat(1000), {.ranks = 3, .micro_batches = 4}),
            (std::vector<RankPrediction>{
                expected({2048, 8192, 4096, 8192, 0}, {2 * 4 * 488 * 4, 0, 4 * 2 * 512 * 4}),
                expected({1952, 8192, 4096, 8192, 0}, {2 * 4 * 512 * 4, 0, 4 * 2 * 488 * 4}),
                expected({0, 8192, 0, 0, 0}, {2 * 4 * 1000 * 4, 0, 0}),
            }));
}

// 2400 bf16 over 2 ranks: 1200 rounded up to 1280, then 1120. In bf16 the whole has 4800 bytes (two
// pages), the shards' f32 states 5120 and 4480 (two pages each).
TEST(PredictByHand, Bf16OverTwoRanks) {
  EXPECT_EQ(ranks_of("zero1", one_flat(2400, DType::bf16), {.ranks = 2}),
            (std::vector<RankPrediction>{
                expected({8192, 8192, 8192, 16384, 8192}, {0, 1120 * 2, 1280 * 2}),
                expected({8192, 8192, 8192, 16384, 8192}, {0, 1280 * 2, 1120 * 2}),
            }));
  // zero0 sums and updates all 2400: 9600 bytes of f32, three pages.
  EXPECT_EQ(ranks_of("zero0", one_flat(2400, DType::bf16), {.ranks = 2})[0],
            expected({8192, 8192, 12288, 24576, 12288}, {0, 0, 1280 * 2 + 1120 * 4}));
  // f32 gradients of bf16 parameters: three pages of bucket, reduced in place.
  Plan plan = *preset("zero1");
  plan.gradient.dtype = DType::f32;
  EXPECT_EQ(predict(plan, one_flat(2400, DType::bf16), {.ranks = 2})->ranks[1],
            expected({8192, 12288, 0, 16384, 8192}, {0, 1280 * 2, 1120 * 4}));
}

TEST(PredictByHand, FullGradientsOf16BitsAreF32FromTheSecondMicroBatchOn) {
  const ModelDesc model = one_flat(2400, DType::bf16);
  const Workload one{.ranks = 2, .gathers_per_micro_batch = 1};
  Workload three = one;
  three.micro_batches = 3;
  const auto rank = [&](const Plan& plan, const Workload& load) {
    return predict(plan, model, load)->ranks[1];
  };
  // zero1: the bucket of 4800 bytes grows to 9600, three pages. Its 1120 elements are sent in f32.
  const Plan zero1 = *preset("zero1");
  EXPECT_EQ(rank(zero1, one).memory.gradient_buckets, 8192u);
  EXPECT_EQ(rank(zero1, one).links.reduce, 1120u * 2);
  EXPECT_EQ(rank(zero1, three).memory.gradient_buckets, 12288u);
  EXPECT_EQ(rank(zero1, three).memory.reduced_gradient, 8192u);
  EXPECT_EQ(rank(zero1, three).links.reduce, 1120u * 4);
  // zero0: the sum of all 2400 takes the micro-batches, without more memory.
  const Plan zero0 = *preset("zero0");
  EXPECT_EQ(rank(zero0, three).memory, rank(zero0, one).memory);
  EXPECT_EQ(rank(zero0, three).links.reduce, 1120u * 4 + 1280 * 4);
  // "param" keeps 16 bits, and sharded gradients have f32 sums anyway.
  Plan rounding = zero1;
  rounding.gradient.rounds = true;
  EXPECT_EQ(rank(rounding, three).memory, rank(zero1, one).memory);
  EXPECT_EQ(rank(rounding, three).links.reduce, 1120u * 2);
  EXPECT_EQ(rank(*preset("zero2"), three).memory, rank(*preset("zero2"), one).memory);
}

TEST(PredictByHand, SmallerThanTheWorld) {
  for (const uint32_t ranks : {2u, 3u, 4u, 5u}) {
    const auto got = ranks_of("zero3", one_flat(32), {.ranks = ranks});
    EXPECT_EQ(got[0], expected({128, 8192, 4096, 8192, 0}, {0, 0, (ranks - 1) * 128}));
    for (uint32_t r = 1; r < ranks; ++r) {
      EXPECT_EQ(got[r], expected({0, 8192, 0, 0, 0}, {2 * 128, 0, 0}));
    }
  }
}

TEST(PredictByHand, ShardsThatDivideExactly) {
  const auto got = ranks_of("zero3", one_flat(1024), {.ranks = 4, .gathers_per_micro_batch = 1});
  for (const RankPrediction& rank : got) {
    EXPECT_EQ(rank, expected({1024, 8192, 4096, 8192, 0}, {768 * 4, 0, 3 * 256 * 4}));
  }
}

TEST(PredictByHand, FiveRanksWithARemainder) {
  // 1100 over 5: 220 rounded up to 256, so 256 * 4 and 76.
  const auto got = ranks_of("zero3", one_flat(1100), {.ranks = 5});
  ASSERT_EQ(got.size(), 5u);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(got[static_cast<size_t>(r)].memory.param, 1024u);
  EXPECT_EQ(got[4].memory.param, 304u);
  EXPECT_EQ(got[4].links.gather_mapped, 2u * 1024 * 4);
  EXPECT_EQ(got[4].links.reduce, 4u * 76 * 4);
}

TEST(PredictByHand, OneRankMovesNothing) {
  for (const std::string_view name : kPresetNames) {
    const auto got = ranks_of(name, one_flat(1000, DType::f16), {.ranks = 1, .micro_batches = 3});
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].links, LinkPrediction{}) << name;
  }
  EXPECT_EQ(ranks_of("zero3", one_flat(1000), {.ranks = 1})[0],
            expected({4000, 8192, 4096, 8192, 0}, {0, 0, 0}));
}

TEST(PredictByHand, NothingCostsNothing) {
  for (const std::string_view name : kPresetNames) {
    for (const ModelDesc& model :
         {ModelDesc{}, ModelDesc{{{"empty", {}}}}, one_flat(0), one_flat(0, DType::bf16)}) {
      const Result<Prediction> prediction = predict(*preset(name), model, {.ranks = 3});
      ASSERT_TRUE(prediction.ok());
      for (const RankPrediction& rank : prediction->ranks) EXPECT_EQ(rank, RankPrediction{});
      EXPECT_EQ(prediction->peak_host, 0u);
    }
  }
}

TEST(PredictByHand, FrozenFlatsAreOnlyGathered) {
  EXPECT_EQ(ranks_of("zero3", one_flat(1000, DType::bf16, false), {.ranks = 2})[0],
            expected({1024, 0, 0, 0, 0}, {2 * 488 * 2, 0, 0}));
  EXPECT_EQ(ranks_of("zero1", one_flat(1000, DType::bf16, false), {.ranks = 2})[0],
            expected({4096, 0, 0, 0, 0}, {0, 0, 0}));
}

TEST(PredictByHand, RingHoldsTheLargestUnit) {
  const ModelDesc model = {
      {{"a", {{DType::f32, 1056, true}, {DType::bf16, 32, true}}},       // 8192+4096
       {"b", {{DType::f32, 2048, true}}},                                // 8192
       {"c", {{DType::f32, 1 << 20, false}, {DType::f16, 32, true}}}}};  // 4096
  Plan plan = *preset("zero2");
  plan.gradient.buckets = 3;
  const Result<Prediction> prediction = predict(plan, model, {.ranks = 2});
  ASSERT_TRUE(prediction.ok());
  EXPECT_EQ(prediction->ranks[0].memory.gradient_buckets, 3u * 12288);
  EXPECT_EQ(prediction->ranks[1].memory.gradient_buckets, 3u * 12288);
}

TEST(PredictByHand, LargeBuffersAreChargedTheirStagger) {
  const uint64_t n = kColorThreshold / 4;
  const auto got = ranks_of("zero0", one_flat(n), {.ranks = 2});
  EXPECT_EQ(got[0].memory.param, kColorThreshold + kColorReserve);
  EXPECT_EQ(got[0].memory.moments, 2 * (kColorThreshold + kColorReserve));
  // In the node's shared segment shards are adjacent, to the byte.
  EXPECT_EQ(ranks_of("zero3", one_flat(n), {.ranks = 1})[0].memory.param, kColorThreshold);
}

}  // namespace
}  // namespace meron
