// SPDX-License-Identifier: Apache-2.0
// Plans with a mesh: N ranks against one process that takes the same sums, first along each shard
// axis and then over the replicas, and gets the same bits: whether the ranks share memory, share
// none, or share it by nodes. The same runs hold counted bytes against predicted ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

constexpr int kSteps = kSanitized ? 4 : 12;

struct Config {
  World world;
  int shards;
  int accumulate = 1;
  meron_dtype dtype = MERON_F32;
  bool finish = false;
  bool local = false;  // whole gradients stay on their rank until the boundary
  bool apart = true;   // gradients are cut over replicas: each micro-batch is exchanged
};

size_t index_of(const Config& config, int step, int k, int rank) {
  return static_cast<size_t>((step * config.accumulate + k) * config.world.ranks + rank);
}

meron_reduce_options options_of(bool boundary, int divisor) {
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.boundary = boundary ? 1 : 0;
  options.divisor = divisor;
  return options;
}

std::string counts_text(const meron_stats& before, const meron_stats& after,
                        const meron_prediction& plan) {
  char text[512];
  const auto per_step = [](uint64_t a, uint64_t b) {
    return static_cast<unsigned long long>((b - a) / kSteps);
  };
  std::snprintf(
      text, sizeof text,
      "mapped %llu/%llu copied %llu/%llu reduced %llu/%llu far gather %llu/%llu far reduce "
      "%llu/%llu param %llu/%llu+%llu gradient %llu/%llu optimizer %llu/%llu",
      per_step(before.gather_mapped_bytes, after.gather_mapped_bytes),
      (unsigned long long)plan.gather_mapped_bytes,
      per_step(before.gather_copied_bytes, after.gather_copied_bytes),
      (unsigned long long)plan.gather_copied_bytes,
      per_step(before.reduce_bytes, after.reduce_bytes), (unsigned long long)plan.reduce_bytes,
      per_step(before.far_gather_bytes, after.far_gather_bytes),
      (unsigned long long)plan.far_gather_bytes,
      per_step(before.far_reduce_bytes, after.far_reduce_bytes),
      (unsigned long long)plan.far_reduce_bytes, (unsigned long long)after.param_bytes,
      (unsigned long long)plan.param_bytes, (unsigned long long)plan.second_copy_bytes,
      (unsigned long long)after.gradient_bytes, (unsigned long long)plan.gradient_bytes,
      (unsigned long long)after.optimizer_bytes, (unsigned long long)plan.optimizer_bytes);
  return text;
}

bool equal_counts(const meron_stats& before, const meron_stats& after,
                  const meron_prediction& plan) {
  return after.gather_mapped_bytes - before.gather_mapped_bytes ==
             kSteps * plan.gather_mapped_bytes &&
         after.gather_copied_bytes - before.gather_copied_bytes ==
             kSteps * plan.gather_copied_bytes &&
         after.reduce_bytes - before.reduce_bytes == kSteps * plan.reduce_bytes &&
         after.far_gather_bytes - before.far_gather_bytes == kSteps * plan.far_gather_bytes &&
         after.far_reduce_bytes - before.far_reduce_bytes == kSteps * plan.far_reduce_bytes &&
         after.param_bytes == plan.param_bytes && after.gradient_bytes == plan.gradient_bytes &&
         after.optimizer_bytes == plan.optimizer_bytes;
}

struct Results {
  explicit Results(const Config& config)
      : losses(static_cast<size_t>(kSteps * config.accumulate * config.world.ranks)),
        weights(weight_count() * static_cast<size_t>(config.world.ranks)),
        counted(static_cast<size_t>(config.world.ranks)) {}
  Shared<float> losses, weights;
  Shared<int> counted;
};

bool run_ranks(const Config& config, Results& results) {
  return run_world(config.world, [&](int rank, meron_context context) {
    Trainer trainer(context, config.dtype);
    const meron_stats before = stats_of(context);
    for (int step = 0; step < kSteps; ++step) {
      for (int k = 0; k < config.accumulate; ++k) {
        auto gradients = trainer.zeros();
        const size_t index = index_of(config, step, k, rank);
        results.losses[index] = trainer.micro_batch(index, gradients);
        const bool last = k + 1 == config.accumulate && !config.finish;
        trainer.reduce(gradients, options_of(last, config.accumulate), k % 2 == 0);
      }
      if (config.finish) trainer.end_accumulation(options_of(true, config.accumulate));
      trainer.step();
    }
    const meron_stats after = stats_of(context);
    meron_prediction plan{};
    plan.struct_size = sizeof(plan);
    meron_workload workload = MERON_WORKLOAD_INIT;
    workload.micro_batches = static_cast<uint32_t>(config.accumulate);
    CALL(meron_context_predict, &plan, context, &workload);
    const bool equal = equal_counts(before, after, plan);
    if (!equal) {
      std::fprintf(stderr, "rank %d: %s\n", rank, counts_text(before, after, plan).c_str());
    }
    results.counted[static_cast<size_t>(rank)] = equal ? 1 : 0;
    trainer.weights(results.weights.data() + static_cast<size_t>(rank) * weight_count());
  });
}

using Gradients = std::vector<std::vector<float>>;

// to = from, or to + from: an f32 sum that begins with its first term.
void join(Gradients& to, const Gradients& from, bool first) {
  for (size_t i = 0; i < to.size(); ++i) {
    for (size_t e = 0; e < to[i].size(); ++e) to[i][e] = first ? from[i][e] : to[i][e] + from[i][e];
  }
}

bool run_twin(const Config& config, Results& results) {
  return run_world({"self", 1, "zero3"}, [&](int, meron_context context) {
    Trainer trainer(context, config.dtype);
    const int ranks = config.world.ranks;
    const int replicas = ranks / config.shards;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Gradients> rows(static_cast<size_t>(replicas), trainer.zeros());
      std::vector<Gradients> own(static_cast<size_t>(ranks), trainer.zeros());
      const auto exchange = [&](bool boundary) {
        for (int i = 0; i < replicas; ++i) {
          trainer.reduce(rows[static_cast<size_t>(i)],
                         options_of(boundary && i + 1 == replicas, config.accumulate * ranks),
                         true);
        }
      };
      for (int k = 0; k < config.accumulate; ++k) {
        for (int rank = 0; rank < ranks; ++rank) {
          auto gradients = trainer.zeros();
          const size_t index = index_of(config, step, k, rank);
          results.losses[index] = trainer.micro_batch(index, gradients);
          if (config.local) {
            join(own[static_cast<size_t>(rank)], gradients, k == 0);
            continue;
          }
          const bool first = rank % config.shards == 0 && (config.apart || k == 0);
          join(rows[static_cast<size_t>(rank / config.shards)], gradients, first);
        }
        if (config.apart && !config.local) exchange(k + 1 == config.accumulate);
      }
      if (config.local) {
        for (int rank = 0; rank < ranks; ++rank) {
          join(rows[static_cast<size_t>(rank / config.shards)], own[static_cast<size_t>(rank)],
               rank % config.shards == 0);
        }
      }
      if (config.local || !config.apart) exchange(true);
      trainer.step();
    }
    trainer.weights(results.weights.data());
  });
}

void expect_twins(const Config& config) {
  Results ranks(config), twin(config);
  ASSERT_TRUE(run_ranks(config, ranks));
  ASSERT_TRUE(run_twin(config, twin));
  EXPECT_EQ(
      0, std::memcmp(ranks.losses.data(), twin.losses.data(), ranks.losses.size() * sizeof(float)))
      << "losses differ";
  const size_t weights = weight_count();
  for (int rank = 0; rank < config.world.ranks; ++rank) {
    EXPECT_EQ(0, std::memcmp(ranks.weights.data() + static_cast<size_t>(rank) * weights,
                             twin.weights.data(), weights * sizeof(float)))
        << "weights of rank " << rank << " differ";
    EXPECT_EQ(1, ranks.counted[static_cast<size_t>(rank)])
        << "rank " << rank << ": counted bytes are not the plan's";
  }
}

struct Kind {
  const char* name;
  std::string (*plan)(int shards);
  bool local, apart;
};

std::string call_of(const char* name, int shards) {
  return std::string(name) + "(" + std::to_string(shards) + ")";
}
std::string table(int shards, const char* param, const char* gradient, const char* optimizer) {
  return R"({"mesh": {"shard": )" + std::to_string(shards) + R"(}, "param": {"sharding": ")" +
         param + R"("}, "gradient": {"sharding": ")" + gradient +
         R"("}, "optimizer": {"sharding": ")" + optimizer + R"("}})";
}

constexpr const char* kWorld = "replica x shard";

const Kind kKinds[] = {
    {"mics", [](int s) { return call_of("mics", s); }, false, false},
    {"hpz", [](int s) { return call_of("hpz", s); }, false, true},
    {"zero3_by_node", [](int s) { return table(s, kWorld, kWorld, kWorld); }, false, true},
    {"mics_with_optimizer_over_all", [](int s) { return table(s, "shard", "shard", kWorld); },
     false, false},
    {"rows_with_parts_of_gradients", [](int s) { return table(s, "shard", kWorld, kWorld); }, false,
     true},
    {"zero1_by_rows", [](int s) { return table(s, "none", "none", "shard"); }, true, false},
    {"zero1_by_parts", [](int s) { return table(s, "none", "none", kWorld); }, true, false},
    {"zero2_by_rows", [](int s) { return table(s, "none", "shard", "shard"); }, false, false},
    {"zero2_by_parts", [](int s) { return table(s, "none", kWorld, kWorld); }, false, true},
    {"whole_gradients_of_rows", [](int s) { return table(s, "shard", "none", "shard"); }, true,
     false},
};

// Transport, ranks, shards, node.
using Shape = std::tuple<const char*, int, int, int>;
class Mesh : public testing::TestWithParam<std::tuple<size_t, Shape, int>> {};

TEST_P(Mesh, EqualsOneProcess) {
  const auto& [which, shape, accumulate] = GetParam();
  const auto& [transport, ranks, shards, node] = shape;
  const Kind& kind = kKinds[which];
  Config config{.world = {.transport = transport, .ranks = ranks, .plan = kind.plan(shards)},
                .shards = shards,
                .accumulate = accumulate,
                .finish = accumulate == 2,
                .local = kind.local,
                .apart = kind.apart && shards < ranks};
  config.world.node = node;
  expect_twins(config);
}

std::string name_of(const testing::TestParamInfo<Mesh::ParamType>& info) {
  const auto& [which, shape, accumulate] = info.param;
  const auto& [transport, ranks, shards, node] = shape;
  return std::string(kKinds[which].name) + "_" + transport + "_n" + std::to_string(ranks) + "_s" +
         std::to_string(shards) + "_node" + std::to_string(node) + "_a" +
         std::to_string(accumulate);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Mesh,
    testing::Combine(testing::Range<size_t>(0, std::size(kKinds)),
                     testing::Values(Shape{"shm", 4, 2, 0}, Shape{"shm", 4, 1, 0},
                                     Shape{"sockets", 4, 2, 0}, Shape{"cluster", 4, 2, 2},
                                     Shape{"cluster", 4, 4, 2}, Shape{"cluster", 4, 1, 2}),
                     testing::Values(1, 2)),
    name_of);
INSTANTIATE_TEST_SUITE_P(Larger, Mesh,
                         testing::Combine(testing::Values<size_t>(0, 1, 3),
                                          testing::Values(Shape{"shm", 6, 2, 0},
                                                          Shape{"cluster", 6, 3, 3},
                                                          Shape{"cluster", 8, 2, 4}),
                                          testing::Values(3)),
                         name_of);

}  // namespace
}  // namespace meron::test
