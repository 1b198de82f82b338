// SPDX-License-Identifier: Apache-2.0
// Where states and parameters lie changes no bit: every rule, dtype of states and plan, with either
// in memory, on a drive, and on both, must train to the same values and states. The same runs hold
// the counted bytes to the predicted ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

constexpr int kSteps = kSanitized ? 3 : 8;
constexpr int kAccumulate = 2;
constexpr std::array kStates = {MERON_OPTIMIZER_STATE_MASTER, MERON_OPTIMIZER_STATE_EXP_AVG,
                                MERON_OPTIMIZER_STATE_EXP_AVG_SQ};

struct Config {
  const char* preset = "zero3";
  int ranks = 2;
  meron_optimizer_kind kind = MERON_OPTIMIZER_ADAMW;
  const char* states = "f32";
  meron_dtype dtype = MERON_F32;
  const char* transport = "shm";
  bool two_groups = false;
  bool like_the_rest = false;  // the second group has the numbers of the first
  bool offload = false;        // offloads the states after each step, and reloads them
  bool momentum = true;        // of SGD; without it the rule keeps no state
};

// Options of the entries on nvme. An empty string keeps the entry in memory.
struct OnNvme {
  std::string optimizer = {}, param = {};
  bool any() const { return !optimizer.empty() || !param.empty(); }
};

// The folder that the test runs in is on a drive; /tmp need not be.
std::string plan_of(const Config& config, const OnNvme& tier) {
  std::string plan = std::string(R"({"preset": ")") + config.preset +
                     R"(", "gradient": {"dtype": "f32"}, "optimizer": {"dtype": ")" +
                     config.states + "\"";
  if (!tier.optimizer.empty()) plan += R"(, "tier": "nvme", "sub_group": 4096, )" + tier.optimizer;
  plan += "}";
  if (!tier.param.empty()) plan += R"(, "param": {"tier": "nvme", )" + tier.param + "}";
  if (tier.any()) plan += R"(, "nvme": {"path": ".", "block": 8192, "depth": 4})";
  return plan + "}";
}

meron_optimizer_options options_of(meron_optimizer_kind kind) {
  meron_optimizer_options options{};
  CALL(meron_optimizer_rule_init, &options, sizeof(options), kind);
  options.learning_rate = kind == MERON_OPTIMIZER_SGD    ? 0.1
                          : kind == MERON_OPTIMIZER_LION ? 0.002
                                                         : 0.01;
  options.max_norm = 0.25;
  options.weight_decay = 0.01;
  if (kind == MERON_OPTIMIZER_SGD) options.beta1 = 0.9;
  return options;
}

// Values, then each state that there is, of all ranks one after the other.
struct Outcome {
  explicit Outcome(int ranks)
      : values(weight_count() * static_cast<size_t>(ranks)),
        states(kStates.size() * weight_count()),
        losses(static_cast<size_t>(kSteps * kAccumulate * ranks)),
        counted(static_cast<size_t>(ranks)) {}
  Shared<float> values, states, losses;
  Shared<int> counted;
};

bool counts_match(meron_context context, const meron_stats& before, const OnNvme& tier) {
  const meron_stats after = stats_of(context);
  meron_prediction plan{};
  plan.struct_size = sizeof(plan);
  meron_workload workload = MERON_WORKLOAD_INIT;
  workload.micro_batches = kAccumulate;
  CALL(meron_context_predict, &plan, context, &workload);
  const uint64_t read = after.nvme_read_bytes - before.nvme_read_bytes;
  bool equal =
      after.nvme_written_bytes - before.nvme_written_bytes == kSteps * plan.nvme_written_bytes &&
      after.nvme_bytes == plan.nvme_bytes && after.optimizer_bytes == plan.optimizer_bytes &&
      after.param_bytes == plan.param_bytes;
  // Values that are still in memory are not read again; the trainer holds all units at a time.
  equal = equal && (tier.param.empty() ? read == kSteps * plan.nvme_read_bytes &&
                                             after.peak_bytes == plan.peak_bytes &&
                                             before.nvme_written_bytes == plan.nvme_bytes
                                       : read > 0 && read <= kSteps * plan.nvme_read_bytes);
  if (!equal) {
    std::fprintf(
        stderr, "read %llu/%llu written %llu/%llu nvme %llu/%llu optimizer %llu/%llu\n",
        (unsigned long long)((after.nvme_read_bytes - before.nvme_read_bytes) / kSteps),
        (unsigned long long)plan.nvme_read_bytes,
        (unsigned long long)((after.nvme_written_bytes - before.nvme_written_bytes) / kSteps),
        (unsigned long long)plan.nvme_written_bytes, (unsigned long long)after.nvme_bytes,
        (unsigned long long)plan.nvme_bytes, (unsigned long long)after.optimizer_bytes,
        (unsigned long long)plan.optimizer_bytes);
  }
  return equal;
}

// Each rank writes its own elements, at their offsets in the full model.
void read_states(Trainer& trainer, float* out) {
  for (size_t s = 0; s < kStates.size(); ++s) {
    float* to = out + s * weight_count();
    for (size_t i = 0; i < trainer.params.size(); ++i) {
      meron_param_info info{};
      info.struct_size = sizeof(info);
      CALL(meron_param_get_info, &info, trainer.params[i]);
      meron_error* err = nullptr;
      const meron_status status =
          meron_optimizer_read_state(to + info.shard_offset, info.shard_count, trainer.optimizer,
                                     trainer.params[i], kStates[s], &err);
      // A rule that does not keep a state says so.
      if (status != MERON_E_ARGUMENT) check(status, err, "meron_optimizer_read_state");
      meron_error_free(err);
      to += trainer.descs[i].count();
    }
  }
}

void expect_status(meron_status wanted, meron_status status, meron_error* err) {
  if (status != wanted) {
    std::fprintf(stderr, "status %d instead of %d\n", status, wanted);
    std::abort();
  }
  meron_error_free(err);
}

// While states are away they take no memory, values can be gathered, and what needs states says so.
void offload_and_reload(Trainer& trainer, meron_context context) {
  const meron_stats before = stats_of(context);
  CALL(meron_optimizer_offload, trainer.optimizer, ".");
  const meron_stats away = stats_of(context);
  meron_optimizer_info info{};
  info.struct_size = sizeof(info);
  CALL(meron_optimizer_get_info, &info, trainer.optimizer);
  if (info.offloaded_bytes == 0 || away.nvme_bytes != before.nvme_bytes + info.offloaded_bytes ||
      away.optimizer_bytes + info.offloaded_bytes > before.optimizer_bytes) {
    std::fprintf(stderr, "offloaded %llu, optimizer %llu -> %llu\n",
                 (unsigned long long)info.offloaded_bytes,
                 (unsigned long long)before.optimizer_bytes,
                 (unsigned long long)away.optimizer_bytes);
    std::abort();
  }
  meron_error* err = nullptr;
  meron_future step{};
  meron_status status = meron_optimizer_step_begin(&step, trainer.optimizer, &err);
  expect_status(MERON_E_STATE, status, err);
  status = meron_optimizer_offload(trainer.optimizer, nullptr, &err);
  expect_status(MERON_E_STATE, status, err);
  auto gradients = trainer.zeros();
  trainer.micro_batch(0, gradients);
  CALL(meron_optimizer_reload, trainer.optimizer);
  status = meron_optimizer_reload(trainer.optimizer, &err);
  expect_status(MERON_E_STATE, status, err);
  status = meron_optimizer_offload(trainer.optimizer, "/", &err);
  expect_status(MERON_E_ARGUMENT, status, err);
  const meron_stats after = stats_of(context);
  if (after.optimizer_bytes != before.optimizer_bytes || after.nvme_bytes != before.nvme_bytes) {
    std::fprintf(stderr, "reloading left something\n");
    std::abort();
  }
}

bool run(const Config& config, const OnNvme& tier, Outcome& outcome) {
  const World world{config.transport, config.ranks, plan_of(config, tier)};
  return run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, config.dtype, true);
    meron_optimizer_options options = options_of(config.kind);
    if (!config.momentum) options.beta1 = 0.0;
    CALL(meron_optimizer_create, &trainer.optimizer, trainer.trained.data(), trainer.trained.size(),
         &options);
    if (config.two_groups) {
      meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
      CALL(meron_optimizer_get_group, &group, trainer.optimizer, 0u);
      group.learning_rate = config.like_the_rest ? options.learning_rate : 0.003;
      group.weight_decay = config.like_the_rest ? options.weight_decay : 0.0;
      // Vectors, in the middle of a block of their unit.
      const std::vector<meron_param> some = {trainer.params[1], trainer.params[4],
                                             trainer.params[6]};
      uint32_t number = 0;
      CALL(meron_optimizer_add_group, &number, trainer.optimizer, some.data(), some.size(), &group);
    }
    const meron_stats before = stats_of(context);
    for (int step = 0; step < kSteps; ++step) {
      for (int k = 0; k < kAccumulate; ++k) {
        const auto index = static_cast<size_t>((step * kAccumulate + k) * config.ranks + rank);
        auto gradients = trainer.zeros();
        outcome.losses[index] = trainer.micro_batch(index, gradients);
        meron_reduce_options reduce = MERON_REDUCE_OPTIONS_INIT;
        reduce.boundary = k + 1 == kAccumulate ? 1 : 0;
        reduce.divisor = kAccumulate;
        trainer.reduce(gradients, reduce, false);
      }
      trainer.step();
      if (config.offload) offload_and_reload(trainer, context);
    }
    outcome.counted[static_cast<size_t>(rank)] = counts_match(context, before, tier) ? 1 : 0;
    read_states(trainer, outcome.states.data());
    trainer.weights(outcome.values.data() + static_cast<size_t>(rank) * weight_count());
  });
}

template <class T>
bool same(Shared<T>& a, Shared<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void expect_same_on_all_tiers(const Config& config) {
  Outcome memory(config.ranks);
  ASSERT_TRUE(run(config, {}, memory));
  std::vector<OnNvme> tiers = {{R"("buffers": 4)"}, {R"("fraction": 0.4, "buffers": 3)"}};
  if (std::string(config.preset) == "zero3") {
    tiers.push_back({"", R"("buffers": 1)"});
    tiers.push_back({R"("buffers": 4)", R"("buffers": 2)"});
    tiers.push_back({R"("fraction": 0.4, "buffers": 3)", R"("buffers": 5, "resident": 600)"});
  }
  for (const OnNvme& tier : tiers) {
    SCOPED_TRACE(plan_of(config, tier));
    Outcome nvme(config.ranks);
    ASSERT_TRUE(run(config, tier, nvme));
    EXPECT_TRUE(same(memory.losses, nvme.losses)) << "losses differ";
    EXPECT_TRUE(same(memory.values, nvme.values)) << "values differ";
    EXPECT_TRUE(same(memory.states, nvme.states)) << "states differ";
    for (int rank = 0; rank < config.ranks; ++rank) {
      EXPECT_EQ(1, nvme.counted[static_cast<size_t>(rank)])
          << "rank " << rank << ": counted bytes are not the plan's";
    }
  }
  for (int rank = 0; rank < config.ranks; ++rank) {
    EXPECT_EQ(1, memory.counted[static_cast<size_t>(rank)]);
  }
  // The run did change something: equal zeros would prove nothing.
  EXPECT_TRUE(std::any_of(memory.states.data(), memory.states.data() + memory.states.size(),
                          [](float value) { return value != 0.0f; }));
  const size_t last = memory.losses.size() - 1;
  EXPECT_NE(memory.losses[last], memory.losses[0]);
}

class Tiers : public testing::TestWithParam<std::tuple<const char*, int, const char*, int>> {};

TEST_P(Tiers, ChangeNoBit) {
  const auto [preset, ranks, states, kind] = GetParam();
  // Both with a master beside the values and without.
  const meron_dtype dtype = (ranks + kind) % 2 == 0 ? MERON_BF16 : MERON_F32;
  expect_same_on_all_tiers({preset, ranks, kind, states, dtype});
}

std::string name_of_parameters(const testing::TestParamInfo<Tiers::ParamType>& info) {
  constexpr std::array kKinds = {"adamw", "adam", "adagrad", "lion", "sgd"};
  return std::string(std::get<0>(info.param)) + "_n" + std::to_string(std::get<1>(info.param)) +
         "_" + std::get<2>(info.param) + "_" + kKinds[static_cast<size_t>(std::get<3>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Rules, Tiers,
                         testing::Combine(testing::Values("zero3"), testing::Values(2),
                                          testing::Values("f32", "bf16", "int8"),
                                          testing::Range(0, 5)),
                         name_of_parameters);
INSTANTIATE_TEST_SUITE_P(Plans, Tiers,
                         testing::Combine(testing::Values("zero0", "zero1", "zero2", "zero3"),
                                          testing::Values(1, 3), testing::Values("f32", "int8"),
                                          testing::Values(0)),
                         name_of_parameters);

TEST(TiersOfThreads, ChangeNoBit) {
  expect_same_on_all_tiers({"zero3", 3, MERON_OPTIMIZER_ADAMW, "f32", MERON_BF16, "local"});
}

TEST(TiersOfARuleWithoutStates, ChangeNoBit) {
  for (const meron_dtype dtype : {MERON_F32, MERON_BF16}) {
    SCOPED_TRACE(dtype);
    Config config{"zero3", 2, MERON_OPTIMIZER_SGD, "f32", dtype};
    config.momentum = false;
    expect_same_on_all_tiers(config);
  }
}

TEST(TiersWithGroups, ChangeNoBit) {
  for (const char* states : {"f32", "bf16", "int8"}) {
    SCOPED_TRACE(states);
    expect_same_on_all_tiers({"zero3", 2, MERON_OPTIMIZER_ADAMW, states, MERON_BF16, "shm", true});
    expect_same_on_all_tiers({"zero1", 3, MERON_OPTIMIZER_SGD, states, MERON_F32, "shm", true});
  }
}

TEST(TiersWithStatesAway, ChangeNoBit) {
  for (const char* states : {"f32", "bf16", "int8"}) {
    for (const meron_dtype dtype : {MERON_F32, MERON_BF16}) {
      SCOPED_TRACE(std::string(states) + ", dtype " + std::to_string(dtype));
      Config config{"zero3", 2, MERON_OPTIMIZER_ADAMW, states, dtype};
      Outcome plain(config.ranks), away(config.ranks), mixed(config.ranks);
      ASSERT_TRUE(run(config, {}, plain));
      config.offload = true;
      ASSERT_TRUE(run(config, {}, away));
      ASSERT_TRUE(run(config, {R"("fraction": 0.4, "buffers": 3)", R"("buffers": 2)"}, mixed));
      EXPECT_TRUE(same(plain.values, away.values)) << "values differ";
      EXPECT_TRUE(same(plain.states, away.states)) << "states differ";
      EXPECT_TRUE(same(plain.values, mixed.values)) << "values differ, on both tiers";
      EXPECT_TRUE(same(plain.states, mixed.states)) << "states differ, on both tiers";
    }
  }
}

// Groups cut flats where params begin, amid the blocks of states: that changes no bit either.
TEST(TiersWithGroups, GroupsOfEqualNumbersAreNone) {
  for (const char* states : {"f32", "bf16", "int8"}) {
    SCOPED_TRACE(states);
    Config config{"zero3", 2, MERON_OPTIMIZER_ADAMW, states, MERON_BF16};
    Outcome plain(config.ranks), grouped(config.ranks);
    ASSERT_TRUE(run(config, {}, plain));
    config.two_groups = config.like_the_rest = true;
    ASSERT_TRUE(run(config, {}, grouped));
    EXPECT_TRUE(same(plain.values, grouped.values)) << "values differ";
    EXPECT_TRUE(same(plain.states, grouped.states)) << "states differ";
  }
}

}  // namespace
}  // namespace meron::test
