// SPDX-License-Identifier: Apache-2.0
// The step itself is held to the last bit by the twin tests in tests/distributed.
#include "optim/options.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace meron {
namespace {

void expect_refused(const Status& status, const char* name) {
  ASSERT_FALSE(status.ok()) << name;
  EXPECT_EQ(MERON_E_ARGUMENT, status.error().code());
  EXPECT_EQ(name, status.error().info().subject);
  EXPECT_FALSE(status.error().info().advice.empty());
}

TEST(OptimizerOptions, DefaultsAreValid) {
  for (const UpdateRule rule : kernels::kRules) {
    EXPECT_TRUE(validate(OptimizerOptions{.rule = rule}).ok());
  }
}

TEST(OptimizerOptions, NamesTheValueThatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    double GroupOptions::*field;
    const char* name;
    std::vector<double> bad;
  } fields[] = {{&GroupOptions::learning_rate, "learning_rate", {-1.0, nan, infinity}},
                {&GroupOptions::beta1, "beta1", {-0.1, 1.0, nan}},
                {&GroupOptions::beta2, "beta2", {-0.1, 1.0, nan}},
                {&GroupOptions::epsilon, "epsilon", {0.0, 1e-46, -1.0, 1e39, nan, infinity}},
                {&GroupOptions::weight_decay, "weight_decay", {-1.0, nan, infinity}}};
  for (const auto& field : fields) {
    for (const double value : field.bad) {
      OptimizerOptions options;
      options.group.*field.field = value;
      expect_refused(validate(options), field.name);
    }
  }
  for (const double value : {-1.0, nan, infinity}) {
    expect_refused(validate(OptimizerOptions{.max_norm = value}), "max_norm");
  }
}

TEST(OptimizerOptions, WhatOnlySgdHas) {
  expect_refused(validate(OptimizerOptions{.dampening = 0.5}), "dampening");
  expect_refused(validate(OptimizerOptions{.nesterov = true}), "nesterov");
  OptimizerOptions sgd{.rule = UpdateRule::sgd};
  sgd.dampening = 0.5;
  EXPECT_TRUE(validate(sgd).ok());
  sgd.nesterov = true;
  expect_refused(validate(sgd), "nesterov");
  sgd.dampening = 0.0;
  EXPECT_TRUE(validate(sgd).ok());
  sgd.group.beta1 = 0.0;
  expect_refused(validate(sgd), "nesterov");
}

TEST(OptimizerOptions, OnlyAdagradDecaysItsRate) {
  OptimizerOptions adagrad{.rule = UpdateRule::adagrad};
  for (const double value : {0.0, 1e-300, 0.5, 1e300}) {
    adagrad.group.lr_decay = value;
    EXPECT_TRUE(validate(adagrad).ok()) << value;
  }
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {-0.5, kNan, kInfinity, -kInfinity}) {
    adagrad.group.lr_decay = value;
    expect_refused(validate(adagrad), "lr_decay");
    expect_refused(validate(OptimizerOptions{.rule = UpdateRule::adagrad}, adagrad.group),
                   "lr_decay");
  }
  for (const UpdateRule rule : kernels::kRules) {
    if (rule == UpdateRule::adagrad) continue;
    OptimizerOptions options{.rule = rule};
    options.group.lr_decay = 0.5;
    expect_refused(validate(options), "lr_decay");
  }
}

TEST(OptimizerOptions, StatesOfEachRule) {
  OptimizerOptions options;
  EXPECT_EQ(2u, states_of(options));
  EXPECT_EQ(0, index_of(options, OptimizerState::exp_avg));
  EXPECT_EQ(1, index_of(options, OptimizerState::exp_avg_sq));
  options.rule = UpdateRule::adagrad;
  EXPECT_EQ(1u, states_of(options));
  EXPECT_EQ(-1, index_of(options, OptimizerState::exp_avg));
  EXPECT_EQ(0, index_of(options, OptimizerState::exp_avg_sq));
  options.rule = UpdateRule::sgd;
  EXPECT_EQ(0, index_of(options, OptimizerState::exp_avg));
  EXPECT_EQ(-1, index_of(options, OptimizerState::exp_avg_sq));
  options.group.beta1 = 0.0;
  EXPECT_EQ(0u, states_of(options));
  EXPECT_EQ(-1, index_of(options, OptimizerState::exp_avg));
  // What has no momentum keeps no state for a group that would want one.
  expect_refused(validate(options, GroupOptions{}), "beta1");
}

TEST(OptimizerOptions, TheHashHasEveryNumber) {
  const OptimizerOptions plain;
  std::vector<uint64_t> hashes = {hash_of(plain)};
  for (double GroupOptions::*field :
       {&GroupOptions::learning_rate, &GroupOptions::beta1, &GroupOptions::beta2,
        &GroupOptions::epsilon, &GroupOptions::weight_decay, &GroupOptions::lr_decay}) {
    OptimizerOptions options;
    options.group.*field = 0.25;
    hashes.push_back(hash_of(options));
  }
  hashes.push_back(hash_of(OptimizerOptions{.rule = UpdateRule::lion}));
  hashes.push_back(hash_of(OptimizerOptions{.max_norm = 1.0}));
  for (size_t i = 0; i < hashes.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(hashes[i], hashes[k]) << i << " and " << k;
  }
}

}  // namespace
}  // namespace meron
