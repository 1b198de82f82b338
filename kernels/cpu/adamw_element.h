// SPDX-License-Identifier: Apache-2.0
// AdamW for one parameter: what adamw.h promises, in its order of operations.
#pragma once

#include <bit>
#include <cmath>

#include "kernels/cpu/adamw.h"

namespace meron::kernels {

constexpr uint32_t magnitude_of(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

struct AdamWConstants {
  explicit AdamWConstants(const AdamW& step)
      : grad_scale(static_cast<float>(step.grad_scale)),
        beta1(static_cast<float>(step.beta1)),
        one_minus_beta1(static_cast<float>(1.0 - step.beta1)),
        beta2(static_cast<float>(step.beta2)),
        one_minus_beta2(static_cast<float>(1.0 - step.beta2)),
        inverse_root_bias2(static_cast<float>(1.0 / std::sqrt(step.bias2))),
        eps(static_cast<float>(step.eps)),
        decay(static_cast<float>(1.0 - step.lr * step.weight_decay)),
        step_size(static_cast<float>(step.lr / step.bias1)) {}

  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_root_bias2, eps, decay,
      step_size;
};

MERON_HOST_DEVICE inline void adamw_element(const AdamWConstants& c, float& p, float g, float& m,
                                            float& v) {
  const float gradient = g * c.grad_scale;
  m = m * c.beta1 + gradient * c.one_minus_beta1;
  v = v * c.beta2 + (gradient * c.one_minus_beta2) * gradient;
  const float denominator = __builtin_sqrtf(v) * c.inverse_root_bias2 + c.eps;
  p = p * c.decay - (m * c.step_size) / denominator;
}

}  // namespace meron::kernels
