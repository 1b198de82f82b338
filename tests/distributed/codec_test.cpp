// SPDX-License-Identifier: Apache-2.0
// Plans whose values and gradients travel encoded: the same bits on every transport and rank,
// within the codec's bound of what was encoded, with exactly the predicted bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/distributed/one_param.h"
#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = kSanitized ? 4 : 10;

struct Case {
  const char* name;
  const char* plan;
  bool difference = false;  // the first version goes in 16 bits
  Frozen frozen = none_frozen;

  // The first step that is counted.
  int first() const { return difference || frozen != none_frozen ? 1 : 0; }
};

const Case kCases[] = {
    {"zeropp", "zeropp(2)"},
    {"mics_int4",
     R"j({"preset": "mics(2)", "gradient": {"codec": {"kind": "int4", "feedback": true}}})j"},
    {"rows_int8_optimizer_over_all",
     R"j({"preset": "mics(2)", "param": {"codec": "int8"}, "gradient": {"codec": "int8"},
         "optimizer": {"sharding": "replica x shard"}})j"},
    {"bf16_both_ways",
     R"j({"preset": "hpz(2)", "param": {"codec": "bf16"}, "gradient": {"codec": "bf16"}})j"},
    {"smooth_and_stochastic",
     R"j({"preset": "hpz(1)",
         "param": {"codec": {"kind": "int8", "block": 64, "rounding": "stochastic"}},
         "gradient": {"codec": {"kind": "int4", "block": 128, "hadamard": true,
                                "feedback": {"beta": 0.5, "reset": 3}}}})j"},
    {"zero2_int4",
     R"j({"mesh": {"shard": 2}, "gradient": {"sharding": "replica x shard", "codec": "int4"},
         "optimizer": {"sharding": "replica x shard"}})j"},
    {"zeropp_some_frozen", "zeropp(2)", false, some_frozen},
    {"some_frozen_by_differences",
     R"j({"preset": "zeropp(2)", "param": {"codec": {"kind": "int8", "difference": true}}})j", true,
     some_frozen},
    {"copies_by_differences",
     R"j({"preset": "zeropp(2)", "param": {"codec": {"kind": "int8", "difference": true}}})j",
     true},
    {"rows_by_random_differences",
     R"j({"preset": "mics(2)", "optimizer": {"sharding": "replica x shard"},
         "param": {"codec": {"kind": "int4", "block": 64, "rounding": "stochastic",
                             "hadamard": true, "difference": true}}})j",
     true},
    {"parts_of_one_by_differences",
     R"j({"preset": "hpz(1)", "param": {"codec": {"kind": "int4", "difference": true}}})j", true},
    {"zero1_int4",
     R"j({"mesh": {"shard": 2}, "gradient": {"codec": "int4"}, "optimizer": {"sharding": "shard"}})j"},
};

struct Outcome {
  Shared<float> losses{kSteps * kRanks}, weights{weight_count() * kRanks};
  Shared<int> counted{kRanks};
};

World world_of(const char* transport, const char* plan) {
  World world{.transport = transport, .ranks = kRanks, .plan = plan};
  world.node = 2;
  return world;
}

bool train(const World& world, meron_dtype dtype, const Case& kind, Outcome& run) {
  return run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, dtype, false, {}, kind.frozen);
    meron_stats before{};
    for (int step = 0; step < kSteps; ++step) {
      if (step == kind.first()) before = stats_of(context);
      auto gradients = trainer.zeros();
      const auto index = static_cast<size_t>(step * kRanks + rank);
      run.losses[index] = trainer.micro_batch(index, gradients);
      trainer.reduce(gradients, MERON_REDUCE_OPTIONS_INIT, true);
      trainer.step();
    }
    const meron_stats after = stats_of(context);
    meron_prediction plan{};
    plan.struct_size = sizeof(plan);
    CALL(meron_context_predict, &plan, context, nullptr);
    const uint64_t steps = static_cast<uint64_t>(kSteps - kind.first());
    const auto grew = [&](uint64_t meron_stats::*count) { return after.*count - before.*count; };
    trainer.weights(run.weights.data() + static_cast<size_t>(rank) * weight_count());
    // Secondary partitions: the bases of differences and frozen params stay; all others are
    // gathered again.
    const uint64_t most = plan.param_bytes + plan.secondary_partition_bytes;
    const uint64_t rest = kind.difference              ? most
                          : kind.frozen != none_frozen ? after.param_bytes
                                                       : plan.param_bytes;
    run.counted[static_cast<size_t>(rank)] =
        grew(&meron_stats::gather_mapped_bytes) == steps * plan.gather_mapped_bytes &&
        grew(&meron_stats::gather_copied_bytes) == steps * plan.gather_copied_bytes &&
        grew(&meron_stats::reduce_bytes) == steps * plan.reduce_bytes &&
        grew(&meron_stats::inter_node_gather_bytes) == steps * plan.inter_node_gather_bytes &&
        grew(&meron_stats::inter_node_reduce_bytes) == steps * plan.inter_node_reduce_bytes &&
        after.param_bytes == rest && rest <= most && stats_of(context).param_bytes == most &&
        after.gradient_bytes == plan.gradient_bytes &&
        after.optimizer_bytes == plan.optimizer_bytes;
  });
}

class Codec : public testing::TestWithParam<std::tuple<Case, meron_dtype>> {};

TEST_P(Codec, GivesTheSameBitsEverywhere) {
  const auto& [kind, dtype] = GetParam();
  Outcome reference;
  ASSERT_TRUE(train(world_of("shm", kind.plan), dtype, kind, reference));
  const size_t count = weight_count();
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(0, std::memcmp(reference.weights.data(),
                             reference.weights.data() + static_cast<size_t>(rank) * count,
                             count * sizeof(float)))
        << "rank " << rank << " sees other values than rank 0";
  }
  for (const char* transport : {"local", "cluster", "sockets"}) {
    SCOPED_TRACE(transport);
    Outcome run;
    ASSERT_TRUE(train(world_of(transport, kind.plan), dtype, kind, run));
    EXPECT_EQ(0, std::memcmp(run.losses.data(), reference.losses.data(),
                             run.losses.size() * sizeof(float)));
    EXPECT_EQ(0, std::memcmp(run.weights.data(), reference.weights.data(),
                             run.weights.size() * sizeof(float)));
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(1, run.counted[static_cast<size_t>(rank)]) << "rank " << rank;
    }
  }
  // It learns as it does without a codec.
  Outcome plain;
  ASSERT_TRUE(
      train(world_of("shm", "zero3"), dtype, {"plain", "zero3", false, kind.frozen}, plain));
  const size_t last = reference.losses.size() - 1;
  EXPECT_NEAR(reference.losses[last], plain.losses[last], 0.05f * plain.losses[last]);
}

INSTANTIATE_TEST_SUITE_P(Plans, Codec,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(MERON_F32, MERON_BF16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == MERON_F32 ? "_f32" : "_bf16");
                         });

constexpr size_t kCount = 5000;

std::vector<float> some_values() {
  std::vector<float> values(kCount);
  uint64_t state = 3;
  for (size_t i = 0; i < kCount; ++i) {
    values[i] = random_float(state) * std::pow(10.0f, static_cast<float>(i / 256 % 7) - 3.0f);
  }
  return values;
}

constexpr const char* kInt8 = R"j({"preset": "hpz(1)", "param": {"codec": "int8"}})j";

TEST(CodecOfValues, KeepsItsBound) {
  const std::vector<float> values = some_values();
  for (const char* transport : {"shm", "sockets"}) {
    SCOPED_TRACE(transport);
    EXPECT_TRUE(run_world({transport, 2, kInt8}, [&](int, meron_context context) {
      const OneParam one(context, kCount);
      one.write(values);
      const auto seen = one.gather();
      // Blocks are counted from the begin of each rank's part.
      constexpr size_t kPart = (kCount / 2 + 255) / 256 * 256;
      for (size_t i = 0; i < kCount; ++i) {
        const size_t part = i < kPart ? 0 : kPart;
        const size_t block = part + (i - part) / 256 * 256;
        const size_t end = std::min({block + 256, part == 0 ? kPart : kCount, kCount});
        float largest = 0.0f;
        for (size_t k = block; k < end; ++k) largest = std::max(largest, std::fabs(values[k]));
        require(std::fabs(seen[i] - values[i]) <= largest / 254.0f * 1.0001f,
                "a value is within half a step");
      }
      const meron_unit_info info = one.info();
      require(info.param_codec == MERON_CODEC_INT8, "the unit says int8");
      require(info.param_error > 0.0 && info.param_error < 0.01, "a small error is told");
      require(info.param_worst_block >= info.param_error, "the worst block is worse");
    }));
  }
}

TEST(CodecOfValues, KeepsNonFiniteValues) {
  std::vector<float> values = some_values();
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[kCount - 1] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(run_world({"sockets", 2, kInt8}, [&](int, meron_context context) {
    const OneParam one(context, kCount);
    one.write(values);
    const auto seen = one.gather();
    require(!std::isfinite(seen[3]) && !std::isfinite(seen[kCount - 1]), "it stays none");
    require(std::isfinite(seen[1000]), "other blocks are as ever");
  }));
}

TEST(CodecOfValues, GoesBackToSixteenBitsAboveTheLimit) {
  const std::vector<float> values = some_values();
  constexpr const char* kStrict =
      R"j({"preset": "hpz(1)", "param": {"codec": {"kind": "int8", "error_limit": 1e-5}}})j";
  for (const char* transport : {"shm", "sockets"}) {
    SCOPED_TRACE(transport);
    EXPECT_TRUE(run_world({transport, 2, kStrict}, [&](int, meron_context context) {
      const OneParam one(context, kCount);
      one.write(values);
      (void)one.gather();
      require(one.info().param_codec == MERON_CODEC_INT8, "the first version travels in int8");
      one.write(values);
      const auto seen = one.gather();
      require(one.info().param_codec == MERON_CODEC_BF16, "the next in bf16");
      for (size_t i = 0; i < kCount; ++i) {
        require(std::fabs(seen[i] - values[i]) <= std::fabs(values[i]) / 256.0f, "rounded to bf16");
      }
    }));
  }
}

// Ranks know each other's errors of what they have gathered, and only of that.
TEST(CodecOfValues, AVersionThatNoRankGatheredDoesNotCount) {
  const std::vector<float> values = some_values();
  World world{.transport = "cluster", .ranks = 4};
  world.node = 2;
  world.plan =
      R"j({"preset": "hpz(2)", "param": {"codec": {"kind": "int8", "error_limit": 1e-5}}})j";
  EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
    const OneParam one(context, kCount);
    for (int version = 0; version < 20; ++version) one.write(values);
    (void)one.gather();
    require(one.info().param_codec == MERON_CODEC_INT8, "the first that is gathered is int8");
    one.write(values);
    (void)one.gather();
    require(one.info().param_codec == MERON_CODEC_BF16, "the next is bf16");
  }));
}

TEST(CodecOfValues, FrozenOnesLieEncoded) {
  const std::vector<float> values = some_values();
  constexpr const char* kFrozen = R"j({"preset": "zero3", "param": {"frozen": "int8"}})j";
  for (const char* transport : {"shm", "sockets", "cluster"}) {
    SCOPED_TRACE(transport);
    World world{transport, 2, kFrozen};
    world.node = 1;
    EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
      const OneParam one(context, kCount, true);
      one.write(values);
      meron_prediction plan{};
      plan.struct_size = sizeof(plan);
      CALL(meron_context_predict, &plan, context, nullptr);
      for (int pass = 0; pass < 2; ++pass) {
        const auto seen = one.gather();
        for (size_t i = 0; i < kCount; ++i) {
          require(std::fabs(seen[i] - values[i]) <= 0.01f * 1000.0f, "about what was written");
        }
      }
      const meron_stats stats = stats_of(context);
      require(stats.param_bytes == plan.param_bytes, "it holds the plan's bytes");
      require(plan.param_bytes < kCount * sizeof(float) / 2, "and these are fewer than exact ones");
    }));
  }
}

TEST(SecondaryPartition, IsHeldFromTheFirstGatherToTheUpdate) {
  const std::vector<float> values = some_values();
  World world{.transport = "cluster", .ranks = 4, .plan = "hpz(2)"};
  world.node = 2;
  EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
    const OneParam one(context, kCount);
    one.write(values);
    meron_prediction plan{};
    plan.struct_size = sizeof(plan);
    CALL(meron_context_predict, &plan, context, nullptr);
    require(plan.secondary_partition_bytes > 0, "there is something to copy");
    require(stats_of(context).param_bytes == plan.param_bytes, "at rest");
    require(one.gather() == values, "as written");
    const meron_stats forward = stats_of(context);
    require(forward.param_bytes == plan.param_bytes + plan.secondary_partition_bytes,
            "with its copy");
    require(forward.inter_node_gather_bytes == plan.inter_node_gather_bytes,
            "from other nodes, once");
    require(one.gather() == values, "the same again");
    require(stats_of(context).inter_node_gather_bytes == forward.inter_node_gather_bytes,
            "the second gather takes nothing from other nodes");
    one.write(values);
    require(stats_of(context).param_bytes == plan.param_bytes, "dropped at the update");
  }));
}

// A unit of a param that trains and one that does not, cut alike.
TEST(SecondaryPartition, KeepsFrozenParams) {
  World world{.transport = "cluster", .ranks = 4, .plan = "hpz(2)"};
  world.node = 2;
  EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
    std::vector<meron_param> params(2);
    const int64_t count = 4096;
    for (size_t i = 0; i < 2; ++i) {
      meron_param_desc desc = MERON_PARAM_DESC_INIT;
      desc.name = i == 0 ? "trained" : "frozen";
      desc.shape = &count;
      desc.dims = 1;
      desc.dtype = MERON_F32;
      desc.frozen = i == 0 ? 0 : 1;
      CALL(meron_param_register, &params[i], context, &desc);
    }
    meron_unit unit{};
    CALL(meron_unit_create, &unit, context, "u", params.data(), params.size());
    const std::vector<float> values(4096, 1.5f);
    const auto write = [&] {
      meron_future update{};
      CALL(meron_update_begin, &update, &unit, 1);
      CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
      for (const meron_param param : params) {
        CALL(meron_update_write, update, param, values.data(), values.size(), MERON_F32);
      }
      CALL(meron_update_publish, update);
    };
    const auto gather = [&] {
      meron_future gather{};
      CALL(meron_gather_begin, &gather, &unit, 1, nullptr);
      CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
      CALL(meron_future_release, gather);
    };
    write();
    meron_optimizer optimizer{};
    meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    CALL(meron_optimizer_create, &optimizer, &unit, 1, &options);
    const uint64_t rest = stats_of(context).param_bytes;
    constexpr uint64_t kPart = 1024 * sizeof(float);  // of one param
    for (int step = 0; step < 3; ++step) {
      gather();
      require(stats_of(context).param_bytes == rest + 2 * kPart, "both are held");
      const meron_source source{params[0], values.data(), values.size(), MERON_F32, 0};
      CALL(meron_reduce_begin, nullptr, unit, &source, 1, nullptr);
      CALL(meron_reduce_wait, &unit, 1, MERON_TIMEOUT_DEFAULT);
      meron_future future{};
      CALL(meron_optimizer_step_begin, &future, optimizer);
      finish(future);
      require(stats_of(context).param_bytes == rest + kPart, "one is dropped at the step");
    }
    const meron_stats before = stats_of(context);
    gather();
    require(stats_of(context).inter_node_gather_bytes - before.inter_node_gather_bytes == kPart,
            "one comes again");
    write();
    require(stats_of(context).param_bytes == rest, "both are dropped at the update");
  }));
}

}  // namespace
}  // namespace meron::test
