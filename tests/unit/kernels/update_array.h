// SPDX-License-Identifier: Apache-2.0
// What an optimizer step reads and writes, for the tests of update(): arrays that are watched for
// writes past their ends, states of every type among them.
#pragma once

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "array.h"
#include "kernels/cpu/update.h"

namespace meron::kernels {

inline constexpr StateType kStateTypes[] = {StateType::f32, StateType::bf16, StateType::int8};

inline const char* name_of(StateType type) {
  return type == StateType::f32 ? "f32" : type == StateType::bf16 ? "bf16" : "int8";
}

inline UpdateStep at_step(Rule rule, int t) {
  UpdateStep step;
  step.rule = rule;
  step.lr = 3e-3;
  step.weight_decay = 0.1;
  if (rule == Rule::lion) step.beta2 = 0.99;
  step.bias1 = 1.0 - std::pow(step.beta1, t);
  step.bias2 = 1.0 - std::pow(step.beta2, t);
  step.grad_scale = 0.37;
  step.first_step = t == 1;
  step.seed = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(t);
  return step;
}

// Every rule, with what changes its loop.
inline std::vector<UpdateStep> steps_of_all_rules(int t) {
  std::vector<UpdateStep> steps;
  for (const Rule rule : kRules) {
    steps.push_back(at_step(rule, t));
    if (rule == Rule::sgd) steps.back().dampening = 0.2;
  }
  steps.push_back(at_step(Rule::sgd, t));
  steps.back().nesterov = true;
  steps.push_back(at_step(Rule::sgd, t));
  steps.back().beta1 = 0.0;
  return steps;
}

// One state of n elements. Codes are held as 16-bit elements, two in each.
class StateArray {
 public:
  StateArray(StateType type, StateKind kind, size_t n, size_t offset, uint32_t seed, bool special)
      : type_(type),
        kind_(kind),
        size_(n),
        values_(type == StateType::f32 ? Type::f32 : Type::bf16,
                type == StateType::int8 ? (n + 1) / 2 : n, offset),
        scales_(Type::f32, scale_count(type, n), offset) {
    fill(values_, seed, special);
    fill(scales_, seed + 1, special);
    Array& real = type == StateType::int8 ? scales_ : values_;
    for (size_t i = 0; i < real.size(); ++i) {
      if (kind == StateKind::square || type == StateType::int8) real.set(i, std::fabs(real.get(i)));
    }
    if (type == StateType::int8 && n % 2 != 0) codes()[n] = 0;
    for (size_t b = 0; b < scales_.size() && type == StateType::int8; ++b) {
      scales()[b] = word_of(kind, b, scales()[b]);
    }
  }

  void* data() { return values_.data(); }
  float* scales() { return scales_.f32(); }
  unsigned char* codes() { return static_cast<unsigned char*>(values_.data()); }

  std::vector<float> read() const {
    std::vector<float> values(size_);
    decode_states(type_, kind_, values.data(), values_.data(),
                  static_cast<const float*>(scales_.data()), size_);
    return values;
  }
  void write(const std::vector<float>& values) {
    encode_states(type_, kind_, data(), scales(), values.data(), size_);
  }

  testing::AssertionResult same_as(const StateArray& expected) const {
    if (auto result = same(scales_, expected.scales_); !result) return result << " (scales)";
    if (type_ != StateType::int8) return same(values_, expected.values_);
    if (!values_.intact()) return testing::AssertionFailure() << "written outside the codes";
    for (size_t i = 0; i < size_; ++i) {
      const auto code = [i](const StateArray& a) {
        return int{static_cast<const unsigned char*>(a.values_.data())[i]};
      };
      if (code(*this) != code(expected)) {
        return testing::AssertionFailure() << "code " << i << " of " << size_ << ": " << code(*this)
                                           << ", expected " << code(expected);
      }
    }
    return testing::AssertionSuccess();
  }

 private:
  // Of a block with this largest element: every format has its turn.
  static float word_of(StateKind kind, size_t block, float largest) {
    constexpr float kLeast[] = {1.0f, 0.9f, 0.1f, 1e-4f, 1e-9f};
    BlockRange range;
    range.include(largest);
    range.include(largest * kLeast[block % std::size(kLeast)]);
    if (kind == StateKind::square) return SquareCode(range).word();
    return AverageCode(range, static_cast<uint32_t>(block % AverageCode::kFormats)).word();
  }

  StateType type_;
  StateKind kind_;
  size_t size_;
  Array values_, scales_;
};

struct UpdateArrays {
  UpdateArrays(const UpdateStep& step, StateType type, size_t n, Type g_type,
               std::optional<Type> out_type, size_t offset, bool special)
      : p(Type::f32, n, offset),
        g(g_type, n, offset + 1),
        out(out_type.value_or(Type::f32), n, offset),
        has_out(out_type.has_value()),
        type(type) {
    fill(p, 1, special);
    fill(g, 2, special);
    for (size_t k = 0; k < state_count(step.rule, step.beta1); ++k) {
      states.emplace_back(type, state_kind(step.rule, k), n, offset + 2 + k,
                          3 + 2 * static_cast<uint32_t>(k), special);
    }
  }

  // From element `begin` on.
  States states_at(size_t begin) {
    States result;
    result.type = type;
    for (size_t k = 0; k < states.size(); ++k) {
      result.data[k] = static_cast<unsigned char*>(states[k].data()) + state_bytes(type, begin);
      if (type == StateType::int8) result.scales[k] = states[k].scales() + begin / kBlock;
    }
    return result;
  }

  template <class Update>
  Largest run(Update apply, const UpdateStep& step, uint64_t first = 0) {
    return apply(step, p.f32(), g.data(), g.type(), states_at(0), has_out ? out.data() : nullptr,
                 out.type(), p.size(), first);
  }

  Array p, g, out;
  bool has_out;
  StateType type;
  std::vector<StateArray> states;
};

inline void expect_same(const UpdateArrays& actual, const UpdateArrays& expected) {
  ASSERT_TRUE(same(actual.p, expected.p));
  ASSERT_TRUE(same(actual.out, expected.out));
  ASSERT_TRUE(same(actual.g, expected.g));
  for (size_t k = 0; k < actual.states.size(); ++k) {
    ASSERT_TRUE(actual.states[k].same_as(expected.states[k])) << "state " << k;
  }
}

}  // namespace meron::kernels
