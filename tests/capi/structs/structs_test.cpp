// SPDX-License-Identifier: Apache-2.0
// Initial values: what a struct holds after its INIT macro, and that no call works with a struct
// that has other values by mistake.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "meron/meron.h"

namespace {

struct Rule {
  const char* name;
  const char* macro;
  meron_optimizer_options options;
  // Those of torch.optim; of Lion, its paper's.
  double learning_rate, beta1, beta2, epsilon, weight_decay;
};
// -1: the rule has no such number.
const Rule kRules[] = {
    {"AdamW", "MERON_OPTIMIZER_ADAMW_INIT", MERON_OPTIMIZER_ADAMW_INIT, 1e-3, 0.9, 0.999, 1e-8,
     0.01},
    {"Adam", "MERON_OPTIMIZER_ADAM_INIT", MERON_OPTIMIZER_ADAM_INIT, 1e-3, 0.9, 0.999, 1e-8, 0.0},
    {"Adagrad", "MERON_OPTIMIZER_ADAGRAD_INIT", MERON_OPTIMIZER_ADAGRAD_INIT, 1e-2, -1, -1, 1e-10,
     0.0},
    {"Lion", "MERON_OPTIMIZER_LION_INIT", MERON_OPTIMIZER_LION_INIT, 1e-4, 0.9, 0.99, -1, 0.0},
    {"SGD", "MERON_OPTIMIZER_SGD_INIT", MERON_OPTIMIZER_SGD_INIT, 1e-3, 0.0, -1, -1, 0.0},
};

template <class Options>
Options zeros() {
  Options made{};
  made.struct_size = sizeof(Options);
  return made;
}

class Structs : public testing::Test {
 protected:
  void SetUp() override {
    meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
    options.rank = 0;
    options.world_size = 1;
    options.transport = "self";
    ok(meron_context_open(&context_, &options, &error_));
    const int64_t shape = 8;
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = "w";
    desc.shape = &shape;
    desc.dims = 1;
    ok(meron_param_register(&param_, context_, &desc, &error_));
    ok(meron_unit_create(&unit_, context_, "u", &param_, 1, &error_));
  }
  void TearDown() override { ok(meron_context_close(context_, &error_)); }

  std::string said() {
    std::string message = meron_error_message(error_);
    meron_error_free(std::exchange(error_, nullptr));
    return message;
  }
  void ok(meron_status status) { ASSERT_EQ(MERON_OK, status) << said(); }
  // The call was refused, in these words.
  void refused(meron_status status, std::initializer_list<const char*> words) {
    EXPECT_EQ(MERON_E_ARGUMENT, status) << meron_status_name(status);
    const std::string message = said();
    for (const char* each : words) {
      EXPECT_NE(std::string::npos, message.find(each)) << message << "\nlacks: " << each;
    }
  }
  meron_status create(meron_optimizer* made, const meron_optimizer_options& options) {
    return meron_optimizer_create(made, &unit_, 1, &options, &error_);
  }
  meron_optimizer_group group_of(meron_optimizer optimizer, uint32_t number = 0) {
    meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
    ok(meron_optimizer_get_group(&group, optimizer, number, &error_));
    return group;
  }

  meron_context context_{};
  meron_param param_{};
  meron_unit unit_{};
  meron_error* error_ = nullptr;
};

TEST_F(Structs, EachRuleTrainsWithItsOwnDefaults) {
  for (const Rule& rule : kRules) {
    SCOPED_TRACE(rule.name);
    meron_optimizer optimizer{};
    ok(create(&optimizer, rule.options));
    const meron_optimizer_group group = group_of(optimizer);
    EXPECT_EQ(rule.learning_rate, group.learning_rate);
    EXPECT_EQ(rule.beta1 < 0 ? group.beta1 : rule.beta1, group.beta1);
    EXPECT_EQ(rule.beta2 < 0 ? group.beta2 : rule.beta2, group.beta2);
    EXPECT_EQ(rule.epsilon < 0 ? group.epsilon : rule.epsilon, group.epsilon);
    EXPECT_EQ(rule.weight_decay, group.weight_decay);
    EXPECT_EQ(0.0, group.lr_decay);
    EXPECT_EQ(0.0, rule.options.max_norm);
    EXPECT_EQ(0.0, rule.options.dampening);
    EXPECT_EQ(0u, rule.options.nesterov);
    ok(meron_optimizer_release(optimizer, &error_));
  }
}

TEST_F(Structs, TheInitFunctionOfARuleGivesItsMacro) {
  for (const Rule& rule : kRules) {
    meron_optimizer_options made{};
    ok(meron_optimizer_rule_init(&made, sizeof(made), rule.options.kind, &error_));
    EXPECT_EQ(0, std::memcmp(&rule.options, &made, sizeof(made))) << rule.name;
  }
  const meron_optimizer_options plain = MERON_OPTIMIZER_OPTIONS_INIT;
  EXPECT_EQ(0, std::memcmp(&kRules[0].options, &plain, sizeof(plain)));
  meron_optimizer_options made{};
  refused(meron_optimizer_rule_init(&made, sizeof(made), 5, &error_), {"kind", "5"});
}

TEST_F(Structs, RefusesTheDefaultsOfAnotherRule) {
  for (const Rule& from : kRules) {
    for (const Rule& to : kRules) {
      if (from.options.kind == to.options.kind) continue;
      meron_optimizer_options options = from.options;
      options.kind = to.options.kind;
      meron_optimizer optimizer{};
      refused(create(&optimizer, options), {"defaults of", from.name, to.name, to.macro});
    }
  }
}

TEST_F(Structs, RefusesOptionsOfZerosAndNamesTheMacro) {
  meron_optimizer optimizer{};
  auto options = zeros<meron_optimizer_options>();
  refused(create(&optimizer, options), {"not initialized", "MERON_OPTIMIZER_ADAMW_INIT"});
  options.epsilon = 1e-8;  // all that its values lack: it would train with a rate of 0
  refused(create(&optimizer, options), {"not initialized", "MERON_OPTIMIZER_ADAMW_INIT"});
  options.kind = MERON_OPTIMIZER_SGD;
  options.learning_rate = 0.1;
  refused(create(&optimizer, options), {"not initialized", "MERON_OPTIMIZER_SGD_INIT"});

  meron_schedule schedule{};
  const auto limits = zeros<meron_schedule_options>();
  refused(meron_schedule_create(&schedule, &unit_, 1, &limits, &error_),
          {"not initialized", "MERON_SCHEDULE_OPTIONS_INIT"});

  meron_future future{};
  meron_view view{};
  ok(meron_gradient_view(&view, param_, 0, &error_));
  const auto reduce = zeros<meron_reduce_options>();
  refused(meron_reduce_begin(&future, unit_, nullptr, 0, &reduce, &error_),
          {"divisor is 0", "MERON_REDUCE_OPTIONS_INIT"});

  meron_io io{};
  const auto io_options = zeros<meron_io_options>();
  refused(meron_io_open(&io, &io_options, &error_), {"block", "MERON_IO_OPTIONS_INIT"});

  meron_prediction prediction = MERON_PREDICTION_INIT;
  const auto workload = zeros<meron_workload>();
  refused(meron_context_predict(&prediction, context_, &workload, &error_), {"micro_batches"});

  meron_context second{};
  const auto open = zeros<meron_context_options>();
  EXPECT_EQ(MERON_E_VERSION, meron_context_open(&second, &open, &error_));
  EXPECT_NE(std::string::npos, said().find("MERON_CONTEXT_OPTIONS_INIT"));
}

TEST_F(Structs, RefusesAGroupOfZerosOrOfAnotherRule) {
  meron_optimizer optimizer{};
  ok(create(&optimizer, kRules[4].options));
  uint32_t number = 0;
  auto group = zeros<meron_optimizer_group>();
  group.epsilon = 1e-8;
  refused(meron_optimizer_add_group(&number, optimizer, &param_, 1, &group, &error_),
          {"group was not initialized", "group of this optimizer"});
  refused(meron_optimizer_set_group(optimizer, 0, &group, &error_),
          {"group was not initialized", "group of this optimizer"});
  const meron_optimizer_group adamw = MERON_OPTIMIZER_GROUP_INIT;
  refused(meron_optimizer_add_group(&number, optimizer, &param_, 1, &adamw, &error_),
          {"defaults of AdamW", "SGD", "group of this optimizer"});
  group = group_of(optimizer);
  group.weight_decay = 0.5;
  ok(meron_optimizer_add_group(&number, optimizer, &param_, 1, &group, &error_));
  EXPECT_EQ(0.5, group_of(optimizer, number).weight_decay);
  EXPECT_EQ(0.0, group_of(optimizer, number).beta1);
}

// Schedulers that warm up begin there.
TEST_F(Structs, AcceptsALearningRateOfZero) {
  for (const Rule& rule : kRules) {
    SCOPED_TRACE(rule.name);
    meron_optimizer_options options = rule.options;
    options.learning_rate = 0.0;
    meron_optimizer optimizer{};
    ok(create(&optimizer, options));
    ok(meron_optimizer_set_learning_rate(optimizer, 0.5, &error_));
    ok(meron_optimizer_set_learning_rate(optimizer, 0.0, &error_));
    meron_optimizer_group group = group_of(optimizer);
    EXPECT_EQ(0.0, group.learning_rate);
    ok(meron_optimizer_set_group(optimizer, 0, &group, &error_));
    uint32_t number = 0;
    ok(meron_optimizer_add_group(&number, optimizer, &param_, 1, &group, &error_));
    EXPECT_EQ(0.0, group_of(optimizer, number).learning_rate);
    ok(meron_optimizer_release(optimizer, &error_));
  }
}

TEST_F(Structs, AcceptsAScheduleWhoseLimitsAreZero) {
  meron_schedule_options options = MERON_SCHEDULE_OPTIONS_INIT;
  options.prefetch_elements = options.max_live_elements = options.max_reuse_elements = 0;
  options.persist_elements = options.persist_total_elements = 0;
  meron_schedule schedule{};
  ok(meron_schedule_create(&schedule, &unit_, 1, &options, &error_));
  ok(meron_schedule_release(schedule, &error_));
}

// The macro of each struct that the library fills has its size, and zeros.
#define EXPECT_EMPTY(type, macro)                                        \
  do {                                                                   \
    const type made = macro;                                             \
    const type expected = zeros<type>();                                 \
    EXPECT_EQ(0, std::memcmp(&expected, &made, sizeof(made))) << #macro; \
  } while (0)

TEST_F(Structs, MacrosOfStructsThatTheLibraryFills) {
  EXPECT_EMPTY(meron_stats, MERON_STATS_INIT);
  EXPECT_EMPTY(meron_prediction, MERON_PREDICTION_INIT);
  EXPECT_EMPTY(meron_param_info, MERON_PARAM_INFO_INIT);
  EXPECT_EMPTY(meron_unit_info, MERON_UNIT_INFO_INIT);
  EXPECT_EMPTY(meron_flat_info, MERON_FLAT_INFO_INIT);
  EXPECT_EMPTY(meron_optimizer_info, MERON_OPTIMIZER_INFO_INIT);
  EXPECT_EMPTY(meron_schedule_info, MERON_SCHEDULE_INFO_INIT);
  EXPECT_EMPTY(meron_checkpoint_info, MERON_CHECKPOINT_INFO_INIT);
  EXPECT_EMPTY(meron_checkpoint_progress, MERON_CHECKPOINT_PROGRESS_INIT);
  EXPECT_EMPTY(meron_io_info, MERON_IO_INFO_INIT);
  EXPECT_EMPTY(meron_io_buffer_info, MERON_IO_BUFFER_INFO_INIT);
  meron_stats stats = MERON_STATS_INIT;
  ok(meron_context_stats(&stats, context_, &error_));
  EXPECT_GE(stats.param_bytes, 8 * sizeof(float));
}

}  // namespace
