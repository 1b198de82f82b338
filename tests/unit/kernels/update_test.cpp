// SPDX-License-Identifier: Apache-2.0
// update() against its reference, to the bit. update_rules_test.cpp tests the results of the rules.
#include "kernels/cpu/update.h"

#include <algorithm>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/update_reference.h"
#include "targets.h"
#include "update_array.h"

namespace meron::kernels {
namespace {

MERON_EACH_TARGET(UpdateKernel);

const auto own = [](auto... arguments) { return update(arguments...); };
const auto handed_over = [](auto... arguments) { return update(arguments..., true); };

// The payload of a NaN is not specified.
void expect_same(const Largest& actual, const Largest& expected) {
  const auto number = [](uint32_t bits) { return std::min(bits, kInfinityBits + 1); };
  EXPECT_EQ(number(actual.value), number(expected.value));
  EXPECT_EQ(number(actual.state), number(expected.state));
}

constexpr std::optional<Type> kOuts[] = {std::nullopt, Type::f32, Type::bf16, Type::f16};

TEST_P(UpdateKernel, EveryRuleTypeSizeAndOffsetEqualsTheReference) {
  const std::vector<UpdateStep> first = steps_of_all_rules(1), second = steps_of_all_rules(2);
  for (size_t r = 0; r < first.size(); ++r) {
    for (const StateType type : kStateTypes) {
      for (const Type g_type : kTypes) {
        for (const std::optional<Type> out_type : kOuts) {
          for (const size_t n : {0u, 1u, 3u, 16u, 31u, 255u, 256u, 257u, 607u, 1025u}) {
            for (const size_t offset : {0u, 5u}) {
              SCOPED_TRACE(testing::Message() << name_of(first[r].rule) << ", " << name_of(type)
                                              << " states, " << name_of(g_type) << " gradients, "
                                              << (out_type ? name_of(*out_type) : "no")
                                              << " output, " << n << " elements at " << offset);
              UpdateArrays actual(first[r], type, n, g_type, out_type, offset, n % 2 != 0);
              UpdateArrays expected(actual);
              for (const UpdateStep& step : {first[r], second[r]}) {
                expect_same(actual.run(own, step), expected.run(update_reference, step));
              }
              expect_same(actual, expected);
              if (testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

// Large copies take another way to memory: aligned and not.
TEST_P(UpdateKernel, LargeOutputsEqualTheReference) {
  for (const UpdateStep& step : {at_step(Rule::lion, 1), at_step(Rule::adamw, 1)}) {
    for (const Type out_type : kTypes) {
      for (const size_t offset : {0u, 1u}) {
        SCOPED_TRACE(testing::Message() << name_of(out_type) << " at " << offset);
        const size_t n = kStreamBytes / size_of(out_type) + 301;
        UpdateArrays actual(step, StateType::int8, n, Type::bf16, out_type, offset, false);
        UpdateArrays expected(actual);
        actual.run(own, step);
        expected.run(update_reference, step);
        expect_same(actual, expected);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Values for peers are written past the caches: p, or the copy if there is one.
TEST_P(UpdateKernel, WhatIsHandedOverEqualsTheReference) {
  for (const UpdateStep& step : steps_of_all_rules(2)) {
    for (const StateType type : kStateTypes) {
      for (const std::optional<Type> out_type : kOuts) {
        for (const size_t n : {0u, 1u, 16u, 333u, 1024u}) {
          for (const size_t offset : {0u, 1u}) {
            UpdateArrays actual(step, type, n, Type::f32, out_type, offset, true);
            UpdateArrays expected(actual);
            actual.run(handed_over, step);
            expected.run(update_reference, step);
            expect_same(actual, expected);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(UpdateKernel, TheCopyMayReplaceTheGradients) {
  constexpr size_t kN = kStreamBytes / 2 + 1000;
  for (const StateType type : kStateTypes) {
    const UpdateStep step = at_step(Rule::adamw, 1);
    UpdateArrays separate(step, type, kN, Type::bf16, Type::bf16, 0, false), in_place(separate);
    separate.run(own, step);
    update(step, in_place.p.f32(), in_place.g.data(), Type::bf16, in_place.states_at(0),
           in_place.g.data(), Type::bf16, kN, 0);
    EXPECT_TRUE(same(in_place.g, separate.out));
    EXPECT_TRUE(same(in_place.p, separate.p));
  }
}

// The order of torch: the square of 5e20 is no f32 number, but a thousandth of it is.
TEST_P(UpdateKernel, SecondMomentsOfLargeGradientsAreFiniteAsInTorch) {
  for (const Rule rule : {Rule::adamw, Rule::adam}) {
    for (const StateType type : kStateTypes) {
      for (const auto& [gradient, finite] : {std::pair{5e20f, true}, std::pair{6e20f, false}}) {
        UpdateStep step = at_step(rule, 1);
        step.grad_scale = 1.0;
        UpdateArrays arrays(step, type, 300, Type::f32, std::nullopt, 0, false);
        for (StateArray& state : arrays.states) state.write(std::vector<float>(300, 0.0f));
        std::fill_n(arrays.g.f32(), 300, 1.0f);
        arrays.g.set(7, gradient);
        const Largest largest = arrays.run(own, step);
        EXPECT_EQ(largest.state < kInfinityBits, finite) << name_of(type);
        EXPECT_EQ(std::isfinite(arrays.states[1].read()[7]), finite) << name_of(type);
      }
    }
  }
}

// A value that 16 bits cannot hold shows in the largest, whatever the gradient is.
TEST_P(UpdateKernel, TheLargestValueIsThatBeforeItIsNarrowed) {
  UpdateStep step = at_step(Rule::sgd, 1);
  step.beta1 = 0.0;
  step.weight_decay = 0.0;
  UpdateArrays arrays(step, StateType::f32, 40, Type::f32, Type::f16, 0, false);
  std::fill_n(arrays.p.f32(), 40, -1.0f);
  std::fill_n(arrays.g.f32(), 40, 0.0f);
  arrays.p.set(33, -66492.0f);
  EXPECT_EQ(std::bit_cast<float>(arrays.run(own, step).value), 66492.0f);
}

TEST_P(UpdateKernel, ManyStepsStayEqualToTheReference) {
  for (const StateType type : {StateType::bf16, StateType::int8}) {
    UpdateArrays actual(at_step(Rule::adamw, 1), type, 4099, Type::f32, Type::bf16, 0, false);
    UpdateArrays expected(actual);
    for (int t = 1; t <= 50; ++t) {
      fill(actual.g, static_cast<uint32_t>(t), false);
      fill(expected.g, static_cast<uint32_t>(t), false);
      actual.run(own, at_step(Rule::adamw, t));
      expected.run(update_reference, at_step(Rule::adamw, t));
    }
    expect_same(actual, expected);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(UpdateKernel, AdamWWithF32StatesHasTheBitsOfAdamw) {
  const UpdateStep step = at_step(Rule::adamw, 3);
  UpdateArrays actual(step, StateType::f32, 1025, Type::bf16, Type::f16, 0, true);
  UpdateArrays expected(actual);
  actual.run(own, step);
  const AdamW numbers = {step.lr,           step.beta1, step.beta2, step.eps,
                         step.weight_decay, step.bias1, step.bias2, step.grad_scale};
  const States states = expected.states_at(0);
  adamw_reference(numbers, expected.p.f32(), expected.g.data(), Type::bf16,
                  static_cast<float*>(states.data[0]), static_cast<float*>(states.data[1]),
                  expected.out.data(), Type::f16, 1025);
  expect_same(actual, expected);
}

// 8-bit states are cut at blocks, others anywhere.
TEST_P(UpdateKernel, RangesCutYieldTheSameBits) {
  constexpr uint64_t kFirst = 7 * kBlock;
  constexpr size_t kN = 9 * kBlock + 17;
  for (const UpdateStep& step : steps_of_all_rules(3)) {
    for (const StateType type : kStateTypes) {
      const size_t grain = type == StateType::int8 ? kBlock : 1;
      UpdateArrays whole(step, type, kN, Type::f16, Type::f16, 0, true), parts(whole);
      whole.run(own, step, kFirst);
      for (size_t begin = 0, end = 0; begin < kN; begin = end) {
        end = std::min(kN, begin + grain * (1 + begin / grain / 3));
        update(step, parts.p.f32() + begin, parts.g.u16() + begin, Type::f16,
               parts.states_at(begin), parts.out.u16() + begin, Type::f16, end - begin,
               kFirst + begin);
      }
      expect_same(parts, whole);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// The random bits' key changes within the range.
TEST_P(UpdateKernel, IndicesBeyond32BitsEqualTheReference) {
  const UpdateStep step = at_step(Rule::adamw, 2);
  for (const uint64_t back : {0u, 1u, 100u, 300u}) {
    const uint64_t first = (uint64_t{5} << 32) - back;
    UpdateArrays actual(step, StateType::bf16, 700, Type::f32, Type::bf16, 0, false);
    UpdateArrays expected(actual), lower(actual);
    actual.run(own, step, first);
    expected.run(update_reference, step, first);
    expect_same(actual, expected);
    lower.run(own, step, first - (uint64_t{1} << 32));
    EXPECT_FALSE(actual.states[0].same_as(lower.states[0])) << "other elements, the same bits";
  }
}

// One number that is none makes its block of 8-bit states NaN, and no other.
TEST_P(UpdateKernel, WhatIsNotFiniteIsNotLost) {
  constexpr size_t kN = 3 * kBlock;
  for (const Rule rule : kRules) {
    for (const StateType type : kStateTypes) {
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        const UpdateStep step = at_step(rule, 2);
        UpdateArrays arrays(step, type, kN, Type::f32, std::nullopt, 0, false);
        arrays.g.set(kBlock + 3, bad);
        arrays.run(own, step);
        for (const StateArray& state : arrays.states) {
          const std::vector<float> values = state.read();
          EXPECT_FALSE(std::isfinite(values[kBlock + 3])) << name_of(rule) << ' ' << name_of(type);
          const auto finite = [](float value) { return std::isfinite(value); };
          EXPECT_TRUE(std::all_of(values.begin(), values.begin() + kBlock, finite));
          EXPECT_TRUE(std::all_of(values.begin() + 2 * kBlock, values.end(), finite));
        }
        // The next step carries it into the parameters. (The sign of Lion's infinity is a number.)
        arrays.g.set(kBlock + 3, 0.0f);
        arrays.run(own, step);
        if (rule == Rule::lion && type != StateType::int8 && std::isinf(bad)) continue;
        EXPECT_FALSE(std::isfinite(arrays.p.get(kBlock + 3)))
            << name_of(rule) << ' ' << name_of(type) << ' ' << bad;
      }
    }
  }
}

}  // namespace
}  // namespace meron::kernels
