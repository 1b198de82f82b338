// SPDX-License-Identifier: Apache-2.0
// The twin test: N ranks against one process that does the same micro-batches in rank order. Losses
// and weights must be equal to the last bit, for every plan, number of ranks, accumulation and
// transport. The same runs hold the plan test: counted bytes equal predicted bytes.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

constexpr int kSteps = kSanitized ? 8 : 50;

struct Config {
  const char* transport;
  bool shares_memory() const {
    return std::strncmp(transport, "sockets", 7) != 0 && std::strcmp(transport, "cluster") != 0;
  }
  std::string plan;
  int ranks;
  int accumulate;
  meron_dtype dtype = MERON_F32;
  bool staged = false;
  bool late_optimizer = false;  // made when the first gradient is reduced already
  bool finish = false;          // no micro-batch is the boundary: the accumulation is ended after
};

// Whole gradients accumulate on their rank first; sharded ones are summed over the ranks in every
// micro-batch. A sum of floats has an order, so the twin follows the plan's.
bool whole_gradients(const std::string& plan) {
  return plan == "zero0" || plan == "zero1" ||
         plan.find("\"gradient\": {\"sharding\": \"none\"") != std::string::npos;
}

// Losses of micro-batch (step, k, rank) at [(step * accumulate + k) * ranks + rank].
size_t loss_count(const Config& config) {
  return static_cast<size_t>(kSteps * config.accumulate * config.ranks);
}

bool run_ranks(const Config& config, Shared<float>& losses, Shared<float>& weights,
               Shared<int>& counted) {
  World world{config.transport, config.ranks, config.plan};
  world.node = 2;
  return run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, config.dtype, config.late_optimizer);
    const meron_stats before = stats_of(context);
    for (int step = 0; step < kSteps; ++step) {
      for (int k = 0; k < config.accumulate; ++k) {
        const size_t index =
            static_cast<size_t>((step * config.accumulate + k) * config.ranks + rank);
        auto gradients = trainer.zeros();
        losses[index] = trainer.micro_batch(index, gradients);
        meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
        options.boundary = k + 1 == config.accumulate && !config.finish ? 1 : 0;
        options.divisor = config.accumulate;
        trainer.reduce(gradients, options, config.staged);
      }
      if (config.finish) {
        meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
        options.divisor = config.accumulate;
        trainer.end_accumulation(options);
      }
      trainer.step();
    }
    const meron_stats after = stats_of(context);
    meron_prediction plan{};
    plan.struct_size = sizeof(plan);
    meron_workload workload = MERON_WORKLOAD_INIT;
    workload.micro_batches = static_cast<uint32_t>(config.accumulate);
    CALL(meron_context_predict, &plan, context, &workload);
    const bool equal = after.gather_mapped_bytes - before.gather_mapped_bytes ==
                           kSteps * plan.gather_mapped_bytes &&
                       after.gather_copied_bytes - before.gather_copied_bytes ==
                           kSteps * plan.gather_copied_bytes &&
                       after.reduce_bytes - before.reduce_bytes == kSteps * plan.reduce_bytes &&
                       after.param_bytes == plan.param_bytes &&
                       after.gradient_bytes == plan.gradient_bytes &&
                       after.optimizer_bytes == plan.optimizer_bytes &&
                       // If ranks share no memory, messages in flight are extra.
                       (config.shares_memory() ? after.peak_bytes == plan.peak_bytes
                                               : after.peak_bytes >= plan.peak_bytes);
    counted[static_cast<size_t>(rank)] = equal ? 1 : 0;
    if (!equal) {
      std::fprintf(
          stderr,
          "rank %d: mapped %llu/%llu copied %llu/%llu reduced %llu/%llu param %llu/%llu "
          "gradient %llu/%llu optimizer %llu/%llu peak %llu/%llu\n",
          rank,
          (unsigned long long)((after.gather_mapped_bytes - before.gather_mapped_bytes) / kSteps),
          (unsigned long long)plan.gather_mapped_bytes,
          (unsigned long long)((after.gather_copied_bytes - before.gather_copied_bytes) / kSteps),
          (unsigned long long)plan.gather_copied_bytes,
          (unsigned long long)((after.reduce_bytes - before.reduce_bytes) / kSteps),
          (unsigned long long)plan.reduce_bytes, (unsigned long long)after.param_bytes,
          (unsigned long long)plan.param_bytes, (unsigned long long)after.gradient_bytes,
          (unsigned long long)plan.gradient_bytes, (unsigned long long)after.optimizer_bytes,
          (unsigned long long)plan.optimizer_bytes, (unsigned long long)after.peak_bytes,
          (unsigned long long)plan.peak_bytes);
    }
    trainer.weights(weights.data() + static_cast<size_t>(rank) * weight_count());
  });
}

// As a gradient of a 16-bit param is given.
float in_dtype(float value, meron_dtype dtype) {
  if (dtype == MERON_F32) return value;
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

// One process does what the ranks do, in rank order. What a rank has added up is f32, also if its
// params have 16 bits.
bool run_twin(const Config& config, Shared<float>& losses, Shared<float>& weights) {
  const bool adds = config.dtype != MERON_F32 && (config.plan == "zero0" || config.plan == "zero1");
  const World world{
      "self", 1,
      adds ? R"({"preset": ")" + config.plan + R"(", "gradient": {"dtype": "f32"}})" : config.plan};
  return run_world(world, [&](int, meron_context context) {
    Trainer trainer(context, config.dtype);
    const int micro_batches = config.accumulate * config.ranks;
    for (int step = 0; step < kSteps; ++step) {
      const auto contribute = [&](const std::vector<std::vector<float>>& gradients, bool last) {
        meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
        options.boundary = last ? 1 : 0;
        options.divisor = micro_batches;
        trainer.reduce(gradients, options, true);
      };
      const auto index = [&](int k, int rank) {
        return static_cast<size_t>((step * config.accumulate + k) * config.ranks + rank);
      };
      if (whole_gradients(config.plan)) {
        for (int rank = 0; rank < config.ranks; ++rank) {
          auto sums = trainer.zeros();
          for (int k = 0; k < config.accumulate; ++k) {
            auto gradients = trainer.zeros();
            losses[index(k, rank)] = trainer.micro_batch(index(k, rank), gradients);
            for (size_t i = 0; i < kParams; ++i) {
              for (size_t e = 0; e < gradients[i].size(); ++e) {
                const float given =
                    adds ? in_dtype(gradients[i][e], config.dtype) : gradients[i][e];
                sums[i][e] = k == 0 ? given : sums[i][e] + given;
              }
            }
          }
          contribute(sums, rank + 1 == config.ranks);
        }
      } else {
        for (int k = 0; k < config.accumulate; ++k) {
          for (int rank = 0; rank < config.ranks; ++rank) {
            auto gradients = trainer.zeros();
            losses[index(k, rank)] = trainer.micro_batch(index(k, rank), gradients);
            contribute(gradients, k + 1 == config.accumulate && rank + 1 == config.ranks);
          }
        }
      }
      trainer.step();
    }
    trainer.weights(weights.data());
  });
}

void expect_twins(const Config& config) {
  const size_t weights = weight_count();
  Shared<float> losses(loss_count(config)), twin_losses(loss_count(config));
  Shared<float> all(weights * static_cast<size_t>(config.ranks)), twin(weights);
  Shared<int> counted(static_cast<size_t>(config.ranks));
  ASSERT_TRUE(run_ranks(config, losses, all, counted));
  ASSERT_TRUE(run_twin(config, twin_losses, twin));
  EXPECT_EQ(0, std::memcmp(losses.data(), twin_losses.data(), losses.size() * sizeof(float)))
      << "losses differ";
  for (int rank = 0; rank < config.ranks; ++rank) {
    EXPECT_EQ(0, std::memcmp(all.data() + static_cast<size_t>(rank) * weights, twin.data(),
                             weights * sizeof(float)))
        << "weights of rank " << rank << " differ";
    EXPECT_EQ(1, counted[static_cast<size_t>(rank)])
        << "rank " << rank << ": counted bytes are not the plan's";
  }
  // The run did learn: a twin of nothing would prove nothing.
  const size_t last = losses.size() - 1;
  if (!kSanitized) {
    EXPECT_LT(losses[last], 0.8f * losses[0]);
  }
}

class Twin : public testing::TestWithParam<std::tuple<const char*, const char*, int, int>> {};

TEST_P(Twin, EqualsOneProcess) {
  const auto [transport, plan, ranks, accumulate] = GetParam();
  // Both ways in: through the bucket in place, and from the trainer's own arrays.
  expect_twins({transport, plan, ranks, accumulate, MERON_F32, (ranks + accumulate) % 2 == 0});
}

std::string name_of_parameters(const testing::TestParamInfo<Twin::ParamType>& info) {
  std::string name = std::get<0>(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "_" + std::get<1>(info.param) + "_n" + std::to_string(std::get<2>(info.param)) +
         "_a" + std::to_string(std::get<3>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Plans, Twin,
                         testing::Combine(testing::Values("local", "shm"),
                                          testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(1, 2, 3, 4), testing::Values(1, 3)),
                         name_of_parameters);

INSTANTIATE_TEST_SUITE_P(CustomTransport, Twin,
                         testing::Combine(testing::Values("sockets", "sockets-threads"),
                                          testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(2, 3), testing::Values(1, 3)),
                         name_of_parameters);

// Two ranks a node; the last of three is alone on its own.
INSTANTIATE_TEST_SUITE_P(Cluster, Twin,
                         testing::Combine(testing::Values("cluster"),
                                          testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(2, 3, 4), testing::Values(1, 3)),
                         name_of_parameters);

// The twin gives its last micro-batch as the boundary: ending without one must give the same bits.
class FinishedTwin : public Twin {};

TEST_P(FinishedTwin, EqualsOneProcess) {
  const auto [transport, plan, ranks, accumulate] = GetParam();
  expect_twins(
      {transport, plan, ranks, accumulate, MERON_F32, ranks % 2 == 0, accumulate == 1, true});
}

INSTANTIATE_TEST_SUITE_P(Alone, FinishedTwin,
                         testing::Combine(testing::Values("self"),
                                          testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(1), testing::Values(1, 3)),
                         name_of_parameters);
INSTANTIATE_TEST_SUITE_P(Plans, FinishedTwin,
                         testing::Combine(testing::Values("local", "shm", "sockets"),
                                          testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(2, 3, 4), testing::Values(3)),
                         name_of_parameters);

// A plan that no preset has: sharded params with full gradients that accumulate without
// communication.
TEST(TwinOfTables, ShardedParamsWithFullGradients) {
  expect_twins({"shm", R"({"preset": "zero3", "gradient": {"sharding": "none"}})", 3, 3});
}

// The norm of the first step is then taken from the sums, not during the reduction.
TEST(TwinOfTables, OptimizerMadeAfterTheFirstReduction) {
  for (const char* plan : {"zero0", "zero1", "zero3"}) {
    SCOPED_TRACE(plan);
    expect_twins({"shm", plan, 3, 1, MERON_F32, false, true});
  }
}

// 16-bit params with f32 gradients and an f32 master.
TEST(TwinOfTables, SixteenBitParams) {
  for (const char* preset : {"zero0", "zero1", "zero3"}) {
    SCOPED_TRACE(preset);
    const bool whole = whole_gradients(preset);
    expect_twins({"shm",
                  std::string(R"({"preset": ")") + preset + R"(", "gradient": {"sharding": ")" +
                      (whole ? "none" : "shard") + R"(", "dtype": "f32"}})",
                  2, 1, MERON_BF16});
  }
}

// 16-bit params whose plan names no dtype of gradients: micro-batches are added in f32, and the
// memory and bytes for that are the plan's.
class SixteenBitTwin : public Twin {};

TEST_P(SixteenBitTwin, AddsMicroBatchesInF32) {
  const auto [transport, plan, ranks, accumulate] = GetParam();
  const bool finish = ranks % 2 == 0;
  expect_twins({transport, plan, ranks, accumulate, MERON_BF16, true, false, finish});
}

INSTANTIATE_TEST_SUITE_P(Alone, SixteenBitTwin,
                         testing::Combine(testing::Values("self"),
                                          testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(1), testing::Values(1, 3)),
                         name_of_parameters);
INSTANTIATE_TEST_SUITE_P(Plans, SixteenBitTwin,
                         testing::Combine(testing::Values("local", "shm", "sockets", "cluster"),
                                          testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(2, 3), testing::Values(1, 3)),
                         name_of_parameters);

}  // namespace
}  // namespace meron::test
