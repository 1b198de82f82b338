// SPDX-License-Identifier: Apache-2.0
// The rules for one parameter: what update.h promises, in its order of operations.
#pragma once

#include "kernels/cpu/adamw_element.h"
#include "kernels/cpu/update.h"

namespace meron::kernels {

constexpr AdamW adamw_of(const UpdateStep& step) {
  return {step.lr,           step.beta1, step.beta2, step.eps,
          step.weight_decay, step.bias1, step.bias2, step.grad_scale};
}

struct UpdateConstants : AdamWConstants {
  explicit UpdateConstants(const UpdateStep& step)
      : AdamWConstants(adamw_of(step)),
        lr(static_cast<float>(step.lr)),
        weight_decay(static_cast<float>(step.weight_decay)),
        one_minus_dampening(static_cast<float>(1.0 - step.dampening)),
        nesterov(step.nesterov),
        first_step(step.first_step) {}

  float lr, weight_decay, one_minus_dampening;
  bool nesterov, first_step;
};

MERON_HOST_DEVICE inline void adam_element(const UpdateConstants& c, float& p, float g, float& m,
                                           float& v) {
  const float gradient = g * c.grad_scale + p * c.weight_decay;
  m = m * c.beta1 + gradient * c.one_minus_beta1;
  v = v * c.beta2 + (gradient * c.one_minus_beta2) * gradient;
  const float denominator = __builtin_sqrtf(v) * c.inverse_root_bias2 + c.eps;
  p = p - (m * c.step_size) / denominator;
}

MERON_HOST_DEVICE inline void adagrad_element(const UpdateConstants& c, float& p, float g,
                                              float& v) {
  const float gradient = g * c.grad_scale + p * c.weight_decay;
  v = v + gradient * gradient;
  p = p - (gradient * c.lr) / (__builtin_sqrtf(v) + c.eps);
}

MERON_HOST_DEVICE inline void lion_element(const UpdateConstants& c, float& p, float g, float& m) {
  const float gradient = g * c.grad_scale;
  const float direction = m * c.beta1 + gradient * c.one_minus_beta1;
  const float size = __builtin_fabsf(direction);
  p = p * c.decay - (size > 0.0f ? __builtin_copysignf(c.lr, direction) : direction);
  m = m * c.beta2 + gradient * c.one_minus_beta2;
}

MERON_HOST_DEVICE inline void sgd_element(const UpdateConstants& c, float& p, float g, float& b) {
  const float gradient = g * c.grad_scale + p * c.weight_decay;
  b = c.first_step ? gradient : b * c.beta1 + gradient * c.one_minus_dampening;
  p = p - (c.nesterov ? gradient + b * c.beta1 : b) * c.lr;
}

MERON_HOST_DEVICE inline void sgd_element(const UpdateConstants& c, float& p, float g) {
  p = p - (g * c.grad_scale + p * c.weight_decay) * c.lr;
}

// By any rule. `states`: as many as state_count() says; the others are not used.
MERON_HOST_DEVICE inline void step_element(Rule rule, size_t states, const UpdateConstants& c,
                                           float& p, float g, float& s0, float& s1) {
  switch (rule) {
    case Rule::adamw:
      return adamw_element(c, p, g, s0, s1);
    case Rule::adam:
      return adam_element(c, p, g, s0, s1);
    case Rule::adagrad:
      return adagrad_element(c, p, g, s0);
    case Rule::lion:
      return lion_element(c, p, g, s0);
    case Rule::sgd:
      return states == 0 ? sgd_element(c, p, g) : sgd_element(c, p, g, s0);
  }
}

}  // namespace meron::kernels
