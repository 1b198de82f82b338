// SPDX-License-Identifier: Apache-2.0
// The rules against their textbook formulas in double, against torch, and with small states.
#include <cmath>
#include <numeric>

#include "kernels/cpu/update.h"
#include "targets.h"
#include "update_array.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(UpdateRules);

const auto by_rule = [](auto... arguments) { return update(arguments...); };

double gradient_at(size_t i, int t) {
  return static_cast<double>(i + 1) * 0.125 *
             static_cast<double>((static_cast<size_t>(t) * 7 + i * 3) % 5) -
         static_cast<double>(i + 1) * 0.25;
}

constexpr size_t kFew = 4;
constexpr int kSteps = 6;
constexpr double kStart[kFew] = {1.0, -2.0, 0.5, 3.0};

// The parameters after kSteps steps with f32 states from zeros.
std::vector<float> after_steps(UpdateStep step) {
  std::vector<float> p(std::begin(kStart), std::end(kStart)), m(kFew), v(kFew), g(kFew);
  const States states = {StateType::f32, {m.data(), v.data()}, {}};
  for (int t = 1; t <= kSteps; ++t) {
    step.bias1 = 1.0 - std::pow(step.beta1, t);
    step.bias2 = 1.0 - std::pow(step.beta2, t);
    step.first_step = t == 1;
    for (size_t i = 0; i < kFew; ++i) g[i] = static_cast<float>(gradient_at(i, t));
    update(step, p.data(), g.data(), Type::f32, states, nullptr, Type::f32, kFew, 0);
  }
  return p;
}

UpdateStep rule_of_table(Rule rule) {
  UpdateStep step;
  step.rule = rule;
  step.lr = 0.01;
  step.weight_decay = 0.1;
  return step;
}

// The expected values: torch 2.13, float64, torch.optim.* with lr=0.01, weight_decay=0.1 and what
// is set below, parameters kStart, gradients gradient_at(i, t) at steps t = 1 to 6.
TEST_P(UpdateRules, FollowTorch) {
  const auto expect = [](const UpdateStep& step, const std::vector<double>& torch) {
    const std::vector<float> p = after_steps(step);
    for (size_t i = 0; i < kFew; ++i) EXPECT_NEAR(p[i], torch[i], 2e-6) << name_of(step.rule);
  };
  expect(rule_of_table(Rule::adamw), {0.981700274, -1.969411038, 0.489809639, 3.000664029});
  expect(rule_of_table(Rule::adam), {0.958237945, -1.962096918, 0.488341246, 2.996347194});
  UpdateStep step = rule_of_table(Rule::adagrad);
  step.eps = 1e-10;
  expect(step, {0.977152473, -1.980605351, 0.490347521, 2.997678869});
  step = rule_of_table(Rule::sgd);  // momentum=0.9
  expect(step, {0.977687206, -1.951306388, 0.487310354, 2.969894754});
  step.dampening = 0.5;
  expect(step, {0.986484618, -1.959247757, 0.483720445, 2.989608337});
  step.dampening = 0.0;
  step.nesterov = true;
  expect(step, {0.974018157, -1.939387603, 0.481861177, 2.959972824});
  step.nesterov = false;
  step.beta1 = 0.0;
  expect(step, {0.994021218, -1.983042423, 0.493257490, 2.987019990});
}

// The pseudocode of arXiv:2302.06675, in double.
TEST_P(UpdateRules, LionFollowsItsPaper) {
  UpdateStep step = rule_of_table(Rule::lion);
  step.beta2 = 0.99;
  const std::vector<float> p = after_steps(step);
  for (size_t i = 0; i < kFew; ++i) {
    double theta = kStart[i], m = 0;
    for (int t = 1; t <= kSteps; ++t) {
      const double g = gradient_at(i, t), c = 0.9 * m + 0.1 * g;
      theta -= 0.01 * ((c > 0 ? 1.0 : c < 0 ? -1.0 : 0.0) + 0.1 * theta);
      m = 0.99 * m + 0.01 * g;
    }
    EXPECT_NEAR(p[i], theta, 2e-6) << i;
  }
}

TEST_P(UpdateRules, LionMovesByItsRateAndNotWithoutDirection) {
  UpdateStep step = rule_of_table(Rule::lion);
  step.weight_decay = 0.0;
  float p[] = {1.0f, 1.0f, 1.0f, 1.0f}, g[] = {1e-20f, -400.0f, 0.0f, NAN}, m[4] = {};
  update(step, p, g, Type::f32, {StateType::f32, {m}, {}}, nullptr, Type::f32, 4, 0);
  EXPECT_EQ(p[0], 1.0f - 0.01f);
  EXPECT_EQ(p[1], 1.0f + 0.01f);
  EXPECT_EQ(p[2], 1.0f);
  EXPECT_TRUE(std::isnan(p[3]));
}

// --- States that are rounded at random. (Every target has the same bits.)

constexpr size_t kMany = 32 * kBlock;

// A step that leaves the parameters alone.
UpdateStep resting(Rule rule) {
  UpdateStep step;
  step.rule = rule;
  step.lr = 0.0;
  return step;
}

double mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// With beta2 = 0.999 a step changes a second moment by less than half a unit of the last place of
// either type: rounded to nearest it would stay 1 for ever.
TEST(SmallStates, SecondMomentsDecay) {
  for (const StateType type : {StateType::bf16, StateType::int8}) {
    UpdateStep step = resting(Rule::adamw);
    UpdateArrays arrays(step, type, kMany, Type::f32, std::nullopt, 0, false);
    arrays.states[0].write(std::vector<float>(kMany, 1.0f));
    arrays.states[1].write(std::vector<float>(kMany, 1.0f));
    std::fill_n(arrays.g.f32(), kMany, 0.0f);
    for (uint64_t t = 1; t <= 1000; ++t) {
      step.seed = t;
      arrays.run(by_rule, step);
      if (t == 10) {
        EXPECT_NEAR(mean(arrays.states[0].read()), std::pow(0.9, 10), 0.004) << name_of(type);
      }
    }
    // Of one element, 1000 roundings leave a deviation of about 0.06 with 8 bits.
    EXPECT_NEAR(mean(arrays.states[1].read()), std::pow(0.999, 1000), 0.003) << name_of(type);
  }
}

// A constant gradient's moment settles at its square, in the mean and about so in every element.
TEST(SmallStates, SecondMomentsSettle) {
  for (const StateType type : {StateType::bf16, StateType::int8}) {
    UpdateStep step = resting(Rule::adamw);
    step.beta2 = 0.99;
    UpdateArrays arrays(step, type, kMany, Type::f32, std::nullopt, 0, false);
    for (StateArray& state : arrays.states) state.write(std::vector<float>(kMany, 0.0f));
    const auto g_of = [](size_t i) { return std::ldexp(1.37f, -static_cast<int>(i % 10)); };
    for (size_t i = 0; i < kMany; ++i) arrays.g.set(i, g_of(i));
    for (uint64_t t = 1; t <= 1500; ++t) {
      step.seed = t;
      arrays.run(by_rule, step);
    }
    const std::vector<float> v = arrays.states[1].read();
    double relative = 0, worst = 0;
    for (size_t i = 0; i < kMany; ++i) {
      const double ratio = static_cast<double>(v[i]) / (static_cast<double>(g_of(i)) * g_of(i));
      relative += ratio / static_cast<double>(kMany);
      worst = std::max(worst, std::fabs(ratio - 1));
    }
    EXPECT_NEAR(relative, 1.0, 0.01) << name_of(type);
    EXPECT_LT(worst, type == StateType::bf16 ? 0.1 : 0.6);
  }
}

// Over many seeds the mean of the stored values is the exact value, and elements and states round
// independently.
TEST(SmallStates, RandomRoundingIsUnbiasedAndIndependent) {
  constexpr size_t kN = kBlock;
  constexpr int kSeeds = 2000;
  for (const StateType type : {StateType::bf16, StateType::int8}) {
    const double unit = type == StateType::bf16 ? 0x1p-7 : 0x1p-3;  // relative, at most
    std::vector<double> sums[2] = {std::vector<double>(kN), std::vector<double>(kN)};
    double together = 0, neighbours = 0;
    std::vector<double> exact[2] = {std::vector<double>(kN), std::vector<double>(kN)};
    for (int s = 0; s < kSeeds; ++s) {
      UpdateStep step = resting(Rule::adamw);
      step.seed = static_cast<uint64_t>(s);
      UpdateArrays arrays(step, type, kN, Type::f32, std::nullopt, 0, false);
      for (StateArray& state : arrays.states) state.write(std::vector<float>(kN, 0.0f));
      for (size_t i = 0; i < kN; ++i) {
        arrays.g.set(i, 1.0f + static_cast<float>(i) / static_cast<float>(kN));
        const double g = arrays.g.get(i);
        exact[0][i] = static_cast<float>(g) * static_cast<float>(1.0 - 0.9);
        exact[1][i] = static_cast<float>(g * g) * static_cast<float>(1.0 - 0.999);
      }
      arrays.run(by_rule, step, 5 * kBlock);
      const std::vector<float> values[2] = {arrays.states[0].read(), arrays.states[1].read()};
      double last = 0;
      for (size_t i = 0; i < kN; ++i) {
        const double error = values[0][i] / exact[0][i] - 1, other = values[1][i] / exact[1][i] - 1;
        sums[0][i] += values[0][i] / exact[0][i];
        sums[1][i] += values[1][i] / exact[1][i];
        together += error * other / (unit * unit);
        neighbours += error * last / (unit * unit);
        last = error;
      }
    }
    // A rounding's deviation is at most half a unit: five of the mean's.
    const double bound = 5 * 0.5 * unit / std::sqrt(kSeeds);
    for (size_t i = 0; i < kN; ++i) {
      ASSERT_NEAR(sums[0][i] / kSeeds, 1.0, bound) << name_of(type) << ' ' << i;
      ASSERT_NEAR(sums[1][i] / kSeeds, 1.0, bound) << name_of(type) << ' ' << i;
    }
    const double correlation_bound = 5 * 0.25 / std::sqrt(kSeeds * static_cast<double>(kN));
    EXPECT_LT(std::fabs(together) / (kSeeds * static_cast<double>(kN)), correlation_bound);
    EXPECT_LT(std::fabs(neighbours) / (kSeeds * static_cast<double>(kN)), correlation_bound);
  }
}

// A least-squares problem with a different curvature in each coordinate: small states solve it as
// well as f32.
TEST(SmallStates, TrainAsF32Does) {
  for (const Rule rule : {Rule::adamw, Rule::adagrad, Rule::lion, Rule::sgd}) {
    double losses[3] = {};
    for (const StateType type : kStateTypes) {
      UpdateStep step = resting(rule);
      step.beta2 = rule == Rule::lion ? 0.99 : 0.999;
      step.lr = rule == Rule::adagrad ? 0.1 : rule == Rule::sgd ? 0.02 : 0.01;
      UpdateArrays arrays(step, type, kMany, Type::f32, std::nullopt, 0, false);
      for (StateArray& state : arrays.states) state.write(std::vector<float>(kMany, 0.0f));
      std::fill_n(arrays.p.f32(), kMany, 0.0f);
      std::mt19937 random(5);
      std::normal_distribution<float> noise;
      const auto curvature = [](size_t i) { return std::ldexp(1.0f, -static_cast<int>(i % 7)); };
      for (int t = 1; t <= 150; ++t) {
        step.bias1 = 1.0 - std::pow(step.beta1, t);
        step.bias2 = 1.0 - std::pow(step.beta2, t);
        step.first_step = t == 1;
        step.seed = static_cast<uint64_t>(t);
        for (size_t i = 0; i < kMany; ++i) {
          arrays.g.set(i, curvature(i) * (arrays.p.get(i) - 1.0f + 0.3f * noise(random)));
        }
        arrays.run(by_rule, step);
      }
      double& loss = losses[static_cast<int>(type)];
      for (size_t i = 0; i < kMany; ++i) {
        loss += curvature(i) * std::pow(arrays.p.get(i) - 1.0, 2) / static_cast<double>(kMany);
      }
    }
    EXPECT_LT(losses[1] / losses[0], 1.01) << name_of(rule);
    EXPECT_LT(losses[2] / losses[0], 1.05) << name_of(rule);
    RecordProperty(std::string(name_of(rule)) + "_int8_loss",
                   std::to_string(losses[2] / losses[0]));
  }
}

}  // namespace
}  // namespace meron::kernels
