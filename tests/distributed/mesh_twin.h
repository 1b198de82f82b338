// SPDX-License-Identifier: Apache-2.0
// N ranks of a mesh against one process that takes the same sums: first along each shard axis, then
// over the replicas.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/distributed/trainer.h"

namespace meron::test {

inline constexpr int kSteps = kSanitized ? 4 : 12;

struct Config {
  World world;
  int shards;
  int accumulate = 1;
  meron_dtype dtype = MERON_F32;
  bool finish = false;
  bool local = false;  // full gradients stay on their rank until the boundary
  bool apart = true;   // gradients are cut over replicas: each micro-batch is exchanged
  Frozen frozen = none_frozen;
  const char* twin = "zero3";  // the plan of the one process

  // The first counted step: the first gather of a run also fetches frozen params.
  int first_counted() const { return frozen == none_frozen ? 0 : 1; }
  uint64_t counted_steps() const { return static_cast<uint64_t>(kSteps - first_counted()); }
};

inline size_t index_of(const Config& config, int step, int k, int rank) {
  return static_cast<size_t>((step * config.accumulate + k) * config.world.ranks + rank);
}

inline meron_reduce_options options_of(bool boundary, int divisor) {
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.boundary = boundary ? 1 : 0;
  options.divisor = divisor;
  return options;
}

inline std::string counts_text(const meron_stats& before, const meron_stats& after,
                               const meron_prediction& plan, uint64_t steps) {
  char text[512];
  const auto per_step = [&](uint64_t a, uint64_t b) {
    return static_cast<unsigned long long>((b - a) / steps);
  };
  std::snprintf(
      text, sizeof text,
      "mapped %llu/%llu copied %llu/%llu reduced %llu/%llu inter-node gather %llu/%llu inter-node "
      "reduce "
      "%llu/%llu param %llu/%llu+%llu gradient %llu/%llu optimizer %llu/%llu",
      per_step(before.gather_mapped_bytes, after.gather_mapped_bytes),
      (unsigned long long)plan.gather_mapped_bytes,
      per_step(before.gather_copied_bytes, after.gather_copied_bytes),
      (unsigned long long)plan.gather_copied_bytes,
      per_step(before.reduce_bytes, after.reduce_bytes), (unsigned long long)plan.reduce_bytes,
      per_step(before.inter_node_gather_bytes, after.inter_node_gather_bytes),
      (unsigned long long)plan.inter_node_gather_bytes,
      per_step(before.inter_node_reduce_bytes, after.inter_node_reduce_bytes),
      (unsigned long long)plan.inter_node_reduce_bytes, (unsigned long long)after.param_bytes,
      (unsigned long long)plan.param_bytes, (unsigned long long)plan.secondary_partition_bytes,
      (unsigned long long)after.gradient_bytes, (unsigned long long)plan.gradient_bytes,
      (unsigned long long)after.optimizer_bytes, (unsigned long long)plan.optimizer_bytes);
  return text;
}

inline bool equal_counts(const meron_stats& before, const meron_stats& after,
                         const meron_prediction& plan, uint64_t steps) {
  return after.gather_mapped_bytes - before.gather_mapped_bytes ==
             steps * plan.gather_mapped_bytes &&
         after.gather_copied_bytes - before.gather_copied_bytes ==
             steps * plan.gather_copied_bytes &&
         after.reduce_bytes - before.reduce_bytes == steps * plan.reduce_bytes &&
         after.inter_node_gather_bytes - before.inter_node_gather_bytes ==
             steps * plan.inter_node_gather_bytes &&
         after.inter_node_reduce_bytes - before.inter_node_reduce_bytes ==
             steps * plan.inter_node_reduce_bytes &&
         after.gradient_bytes == plan.gradient_bytes &&
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

inline bool run_ranks(const Config& config, Results& results) {
  return run_world(config.world, [&](int rank, meron_context context) {
    Trainer trainer(context, config.dtype, false, {}, config.frozen);
    meron_stats before{};
    for (int step = 0; step < kSteps; ++step) {
      if (step == config.first_counted()) before = stats_of(context);
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
    trainer.weights(results.weights.data() + static_cast<size_t>(rank) * weight_count());
    // The update drops a secondary partition, except its frozen params, and a gather fetches it
    // again.
    const uint64_t gathered = stats_of(context).param_bytes;
    const uint64_t most = plan.param_bytes + plan.secondary_partition_bytes;
    const uint64_t rest = config.frozen == none_frozen ? plan.param_bytes : after.param_bytes;
    const bool equal = equal_counts(before, after, plan, config.counted_steps()) &&
                       after.param_bytes == rest && rest >= plan.param_bytes && rest <= most &&
                       gathered == most;
    if (!equal) {
      std::fprintf(stderr, "rank %d: %s gathered %llu\n", rank,
                   counts_text(before, after, plan, config.counted_steps()).c_str(),
                   (unsigned long long)gathered);
    }
    results.counted[static_cast<size_t>(rank)] = equal ? 1 : 0;
  });
}

using Gradients = std::vector<std::vector<float>>;

// to = from, or to + from: an f32 sum that begins with its first term.
inline void join(Gradients& to, const Gradients& from, bool first) {
  for (size_t i = 0; i < to.size(); ++i) {
    for (size_t e = 0; e < to[i].size(); ++e) to[i][e] = first ? from[i][e] : to[i][e] + from[i][e];
  }
}

inline bool run_twin(const Config& config, Results& results) {
  return run_world({"self", 1, config.twin}, [&](int, meron_context context) {
    Trainer trainer(context, config.dtype, false, {}, config.frozen);
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

inline void expect_twins(const Config& config) {
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

}  // namespace meron::test
