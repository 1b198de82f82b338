// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/adamw.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "array.h"
#include "kernels/cpu/copy.h"
#include "targets.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(AdamWKernel);

AdamW at_step(int t) {
  AdamW step;
  step.lr = 3e-3;
  step.weight_decay = 0.1;
  step.bias1 = 1.0 - std::pow(step.beta1, t);
  step.bias2 = 1.0 - std::pow(step.beta2, t);
  step.grad_scale = 0.37;
  return step;
}

const auto adamw_own = [](auto... arguments) { adamw(arguments...); };
const auto adamw_handed_over = [](auto... arguments) { adamw(arguments..., true); };

// The arrays of a step. Second moments are not negative, as in training.
struct State {
  State(size_t n, Type g_type, std::optional<Type> out_type, size_t offset, bool special)
      : p(Type::f32, n, offset),
        g(g_type, n, offset + 1),
        m(Type::f32, n, offset + 2),
        v(Type::f32, n, offset + 3),
        out(out_type.value_or(Type::f32), n, offset),
        has_out(out_type.has_value()) {
    fill(p, 1, special);
    fill(g, 2, special);
    fill(m, 3, special);
    fill(v, 4, special);
    for (size_t i = 0; i < n; ++i) v.f32()[i] = std::fabs(v.f32()[i]);
  }

  template <class Step>
  void run(Step step, const AdamW& numbers) {
    step(numbers, p.f32(), g.data(), g.type(), m.f32(), v.f32(), has_out ? out.data() : nullptr,
         out.type(), p.size());
  }

  Array p, g, m, v, out;
  bool has_out;
};

void expect_same(const State& actual, const State& expected) {
  ASSERT_TRUE(same(actual.p, expected.p));
  ASSERT_TRUE(same(actual.m, expected.m));
  ASSERT_TRUE(same(actual.v, expected.v));
  ASSERT_TRUE(same(actual.out, expected.out));
  ASSERT_TRUE(same(actual.g, expected.g));
}

TEST_P(AdamWKernel, EveryTypeSizeAndOffsetEqualsTheReference) {
  for (const Type g_type : kTypes) {
    for (const std::optional<Type> out_type :
         {std::optional<Type>(), {Type::f32}, {Type::bf16}, {Type::f16}}) {
      for (size_t n = 0; n <= 1025; n += n < 70 ? 1 : 191) {
        for (const size_t offset : {0u, 1u, 5u}) {
          SCOPED_TRACE(testing::Message() << name_of(g_type) << " gradients, "
                                          << (out_type ? name_of(*out_type) : "no") << " output, "
                                          << n << " elements at " << offset);
          State actual(n, g_type, out_type, offset, true), expected(actual);
          for (int t = 1; t <= 2; ++t) {
            actual.run(adamw_own, at_step(t));
            expected.run(adamw_reference, at_step(t));
          }
          expect_same(actual, expected);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Large copies take another way to memory: aligned and not.
TEST_P(AdamWKernel, LargeOutputsEqualTheReference) {
  for (const Type out_type : kTypes) {
    for (const size_t offset : {0u, 1u}) {
      SCOPED_TRACE(testing::Message() << name_of(out_type) << " at " << offset);
      const size_t n = kStreamBytes / size_of(out_type) + 301;
      State actual(n, Type::bf16, out_type, offset, true), expected(actual);
      actual.run(adamw_own, at_step(1));
      expected.run(adamw_reference, at_step(1));
      expect_same(actual, expected);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Values for peers are written past the caches: p, or the copy if there is one.
TEST_P(AdamWKernel, WhatIsHandedOverEqualsTheReference) {
  for (const std::optional<Type> out_type : {std::optional<Type>(), {Type::f32}, {Type::bf16}}) {
    for (const size_t n : {0u, 1u, 15u, 16u, 333u}) {
      for (const size_t offset : {0u, 1u}) {
        State actual(n, Type::f32, out_type, offset, true), expected(actual);
        actual.run(adamw_handed_over, at_step(1));
        expected.run(adamw_reference, at_step(1));
        expect_same(actual, expected);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Rounding differences of a fused or approximated operation show within a few steps.
TEST_P(AdamWKernel, ManyStepsStayEqualToTheReference) {
  State actual(4099, Type::f32, Type::bf16, 0, false), expected(actual);
  for (int t = 1; t <= 50; ++t) {
    fill(actual.g, static_cast<uint32_t>(t), false);
    fill(expected.g, static_cast<uint32_t>(t), false);
    actual.run(adamw_own, at_step(t));
    expected.run(adamw_reference, at_step(t));
  }
  expect_same(actual, expected);
}

TEST_P(AdamWKernel, TheCopyMayReplaceTheGradients) {
  constexpr size_t kN = kStreamBytes / 2 + 1000;
  State separate(kN, Type::bf16, Type::bf16, 0, false), in_place(separate);
  separate.run(adamw_own, at_step(1));
  adamw(at_step(1), in_place.p.f32(), in_place.g.data(), Type::bf16, in_place.m.f32(),
        in_place.v.f32(), in_place.g.data(), Type::bf16, kN);
  EXPECT_TRUE(same(in_place.g, separate.out));
  EXPECT_TRUE(same(in_place.p, separate.p));
}

// The first step moves by lr against the gradient's sign, whatever its size, after the decay.
TEST_P(AdamWKernel, FirstStepIsTheLearningRateAgainstTheGradient) {
  AdamW step;
  step.lr = 0.1;
  step.weight_decay = 0.01;
  step.bias1 = 1.0 - step.beta1;
  step.bias2 = 1.0 - step.beta2;
  float p[] = {1.0f, 1.0f, -2.0f}, g[] = {0.5f, -400.0f, 0.0f}, m[3] = {}, v[3] = {};
  adamw(step, p, g, Type::f32, m, v, nullptr, Type::f32, 3);
  EXPECT_NEAR(p[0], 0.899, 1e-6);
  EXPECT_NEAR(p[1], 1.099, 1e-6);
  EXPECT_NEAR(p[2], -1.998, 1e-6);
  EXPECT_NEAR(m[0], 0.05, 1e-8);
  EXPECT_NEAR(v[0], 0.00025, 1e-10);
}

// The textbook recurrence in double.
TEST_P(AdamWKernel, FollowsTheRecurrence) {
  constexpr int kSteps = 200;
  float p = 0.7f, m = 0, v = 0;
  double dp = 0.7f, dm = 0, dv = 0;
  for (int t = 1; t <= kSteps; ++t) {
    AdamW step = at_step(t);
    const float g = std::sin(0.1f * static_cast<float>(t)) + 0.2f;
    adamw(step, &p, &g, Type::f32, &m, &v, nullptr, Type::f32, 1);
    const double gradient = static_cast<double>(g) * step.grad_scale;
    dm = step.beta1 * dm + (1 - step.beta1) * gradient;
    dv = step.beta2 * dv + (1 - step.beta2) * gradient * gradient;
    dp -= step.lr * step.weight_decay * dp;
    dp -= step.lr * (dm / step.bias1) / (std::sqrt(dv / step.bias2) + step.eps);
  }
  EXPECT_NEAR(p, dp, 1e-5);
  EXPECT_NEAR(m, dm, 1e-6);
  EXPECT_NEAR(v, dv, 1e-6);
}

TEST_P(AdamWKernel, ZeroGradientsAndMomentsLeaveOnlyDecay) {
  AdamW step = at_step(1);
  float p[] = {4.0f, -0.0f}, g[] = {0.0f, -0.0f}, m[2] = {}, v[2] = {};
  adamw(step, p, g, Type::f32, m, v, nullptr, Type::f32, 2);
  EXPECT_EQ(p[0], 4.0f * static_cast<float>(1.0 - step.lr * step.weight_decay));
  EXPECT_EQ(p[1], 0.0f);
}

// Cutting a range must not change it: neither its vectors nor its tail depend on the position.
TEST_P(AdamWKernel, RangesCutAnywhereYieldTheSameBits) {
  State whole(1025, Type::f16, Type::f16, 0, true), parts(whole);
  whole.run(adamw_own, at_step(3));
  for (size_t begin = 0, end = 0; begin < 1025; begin = end) {
    end = std::min<size_t>(1025, begin + 1 + begin / 3);
    adamw(at_step(3), parts.p.f32() + begin, parts.g.u16() + begin, Type::f16,
          parts.m.f32() + begin, parts.v.f32() + begin, parts.out.u16() + begin, Type::f16,
          end - begin);
  }
  expect_same(parts, whole);
}

}  // namespace
}  // namespace meron::kernels
