// SPDX-License-Identifier: Apache-2.0
// One optimizer step on a range of parameters, in one pass over memory: any of the rules, with its
// states in f32, bf16 or 8 bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/state_code.h"
#include "kernels/cpu/type.h"

namespace meron::kernels {

// The numbers are those of meron_optimizer_kind. docs/contributing/update_rule.md explains how to
// add a rule.
enum class Rule : int32_t { adamw = 0, adam = 1, adagrad = 2, lion = 3, sgd = 4 };

// Every rule, in the order of its number.
inline constexpr std::array kRules = {Rule::adamw, Rule::adam, Rule::adagrad, Rule::lion,
                                      Rule::sgd};

constexpr std::string_view name_of(Rule rule) {
  switch (rule) {
    case Rule::adamw:
      return "AdamW";
    case Rule::adam:
      return "Adam";
    case Rule::adagrad:
      return "Adagrad";
    case Rule::lion:
      return "Lion";
    case Rule::sgd:
      return "SGD";
  }
  return "?";
}

// The numbers of one step, in double as those of AdamW (adamw.h).
struct UpdateStep {
  Rule rule = Rule::adamw;
  double lr = 1e-3;
  double beta1 = 0.9;  // SGD's momentum
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double bias1 = 1.0;  // AdamW, Adam: 1 - beta1^t at step t = 1, 2, ...
  double bias2 = 1.0;  // 1 - beta2^t
  double grad_scale = 1.0;
  bool nesterov = false;    // SGD
  double dampening = 0.0;   // SGD
  bool first_step = false;  // SGD: the momentum becomes the gradient, undampened, as in torch
  // States that are not f32 are rounded at random, with bits that depend on this, on the element's
  // index and on nothing else. A seed is not used again for another step of these states.
  uint64_t seed = 0;
};

// How many states a rule keeps: AdamW and Adam exp_avg and exp_avg_sq, Adagrad the sum of squares,
// Lion exp_avg, SGD the momentum buffer unless the momentum is 0.
constexpr size_t state_count(Rule rule, double momentum) {
  if (rule == Rule::adamw || rule == Rule::adam) return 2;
  return rule == Rule::sgd && momentum == 0.0 ? 0 : 1;
}

// The kind of a state, by which state_code.h encodes it: sums and averages of squares are unsigned.
constexpr StateKind state_kind(Rule rule, size_t which) {
  return rule == Rule::adagrad || which == 1 ? StateKind::square : StateKind::average;
}

// The states of a range, as many as state_count() says. Zeroed memory is a state of zeros in every
// type.
struct States {
  StateType type = StateType::f32;
  void* data[2] = {};
  float* scales[2] = {};  // StateType::int8: the word of each block of kBlock elements
};

// Updates n parameters p (f32 master) and their states in place from the gradients g, and writes p
// also to `out` in out_type unless `out` is null. `first` is the index of p[0] in its flat; with
// 8-bit states it is a multiple of kBlock, where blocks begin, and the last block of a flat may be
// shorter. The bits do not depend on where a flat is split, if it is split at multiples of kBlock.
//
// Every operation below is one f32 operation, rounded to nearest, in this order; nothing is fused
// and nothing approximated. Names that are not arrays are computed once, in double, and rounded to
// f32. g' = g * grad_scale; for Adam, Adagrad and SGD, g' = g * grad_scale + p * weight_decay.
//
// AdamW, Adam (Loshchilov and Hutter, arXiv:1711.05101; Kingma and Ba, arXiv:1412.6980):
//   m  = m * beta1 + g' * (1 - beta1)
//   v  = v * beta2 + (g' * (1 - beta2)) * g'                        the order of torch
//   d  = sqrt(v) * (1 / sqrt(bias2)) + eps
//   p  = p * (1 - lr * weight_decay) - (m * (lr / bias1)) / d        Adam: p - ...
// Adagrad (Duchi et al.), as torch.optim.Adagrad without lr_decay:
//   v  = v + g' * g'
//   p  = p - (g' * lr) / (sqrt(v) + eps)
// Lion (Chen et al., arXiv:2302.06675):
//   c  = m * beta1 + g' * (1 - beta1)
//   p  = p * (1 - lr * weight_decay) - (c is 0 or NaN: c; else lr with c's sign)
//   m  = m * beta2 + g' * (1 - beta2)
// SGD, as torch.optim.SGD; b is the momentum buffer:
//   b  = b * beta1 + g' * (1 - dampening)                            first step: g'
//   p  = p - (nesterov: g' + b * beta1; else b; without momentum g') * lr
//
// Returns the largest magnitudes. New states are used in f32; what is stored is rounded as
// state_code.h says. Only a NaN's sign and
// payload are unspecified. Arrays, `out`, `handed_over` and threads are as with adamw() (adamw.h),
// whose bits this has for AdamW with f32 states.
Largest update(const UpdateStep& step, float* p, const void* g, Type g_type, const States& states,
               void* out, Type out_type, size_t n, uint64_t first, bool handed_over = false);

}  // namespace meron::kernels
