// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, arXiv:1711.05101) on a range of parameters, in one pass over
// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/type.h"

namespace meron::kernels {

// The numbers of one step. They are double so that a caller's 0.999 is not first rounded to f32,
// which would put an error of 5e-5 into 1 - beta2.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double bias1 = 1.0;  // 1 - beta1^t at step t = 1, 2, ...
  double bias2 = 1.0;  // 1 - beta2^t
  double grad_scale =
      1.0;  // gradients are multiplied by it first: clip coefficient, 1 / loss scale
};

// The largest magnitudes that a step left, as bits of f32, before they were rounded to a smaller
// type. A caller sees from them that a number is infinite, or nearly so: a NaN is above infinity.
struct Largest {
  uint32_t value = 0;  // of p, if it is copied to `out`
  uint32_t state = 0;  // of squares, or of SGD's momentum; Lion's average cannot outgrow g

  void include(const Largest& other) {
    value = std::max(value, other.value);
    state = std::max(state, other.state);
  }
};

// Updates n parameters p (f32 master) and their moments m and v in place from the gradients g, and
// writes p also to `out` in out_type unless `out` is null.
//
// Every operation below is one f32 operation, rounded to nearest, in this order; nothing is fused
// and nothing approximated, so the result is the same bits on every CPU. Names on the right that
// are not arrays are computed once, in double, and rounded to f32.
//   g' = g * grad_scale
//   m  = m * beta1 + g' * (1 - beta1)
//   v  = v * beta2 + (g' * (1 - beta2)) * g'
//   d  = sqrt(v) * (1 / sqrt(bias2)) + eps
//   p  = p * (1 - lr * weight_decay) - (m * (lr / bias1)) / d
// Only a NaN's sign and payload are unspecified. Returns the largest v, and p if there is `out`.
//
// Arrays are aligned to their element and do not overlap, except that `out` may be the very array
// `g` when both types are of one size. Any other large `out` is written past the caches
// (kStreamBytes of copy.h). `handed_over`: other cores have read the values (`out`, or p where
// there is none) and will read them next; then these are, whatever their size (hand_over of
// copy.h). On return all of them can be published with a release operation. May be called from any
// number of threads on ranges that do not overlap.
Largest adamw(const AdamW& step, float* p, const void* g, Type g_type, float* m, float* v,
              void* out, Type out_type, size_t n, bool handed_over = false);

}  // namespace meron::kernels
