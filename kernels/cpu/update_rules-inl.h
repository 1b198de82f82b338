// SPDX-License-Identifier: Apache-2.0
// The rules of update.h on vectors, for the target that is being compiled. Each step takes p, the
// gradient as loaded and its states, and leaves the new p and states there.

// Per-target guard (Highway's convention): the file is read again for each target.
#if defined(MERON_KERNELS_CPU_UPDATE_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERON_KERNELS_CPU_UPDATE_RULES_INL_H_
#undef MERON_KERNELS_CPU_UPDATE_RULES_INL_H_
#else
#define MERON_KERNELS_CPU_UPDATE_RULES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update_element.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

HWY_INLINE F32Vec all(float value) {
  return hn::Set(F32Tag(), value);
}

HWY_INLINE F32Vec with_decay(const UpdateConstants& c, F32Vec p, F32Vec g) {
  return hn::Add(hn::Mul(g, all(c.grad_scale)), hn::Mul(p, all(c.weight_decay)));
}

// The new moments, and what p is to lose.
HWY_INLINE F32Vec adam_change(const UpdateConstants& c, F32Vec gradient, F32Vec& m, F32Vec& v) {
  m = hn::Add(hn::Mul(m, all(c.beta1)), hn::Mul(gradient, all(c.one_minus_beta1)));
  v = hn::Add(hn::Mul(v, all(c.beta2)),
              hn::Mul(hn::Mul(gradient, all(c.one_minus_beta2)), gradient));
  const F32Vec denominator = hn::Add(hn::Mul(hn::Sqrt(v), all(c.inverse_root_bias2)), all(c.eps));
  return hn::Div(hn::Mul(m, all(c.step_size)), denominator);
}

struct AdamWRule {
  static constexpr size_t kStates = 2;
  static constexpr StateKind kKinds[] = {StateKind::average, StateKind::square};
  static HWY_INLINE void step(const UpdateConstants& c, F32Vec& p, F32Vec g, F32Vec& m, F32Vec& v) {
    const F32Vec change = adam_change(c, hn::Mul(g, all(c.grad_scale)), m, v);
    p = hn::Sub(hn::Mul(p, all(c.decay)), change);
  }
};

struct AdamRule {
  static constexpr size_t kStates = 2;
  static constexpr StateKind kKinds[] = {StateKind::average, StateKind::square};
  static HWY_INLINE void step(const UpdateConstants& c, F32Vec& p, F32Vec g, F32Vec& m, F32Vec& v) {
    p = hn::Sub(p, adam_change(c, with_decay(c, p, g), m, v));
  }
};

struct AdagradRule {
  static constexpr size_t kStates = 1;
  static constexpr StateKind kKinds[] = {StateKind::square, StateKind::square};
  static HWY_INLINE void step(const UpdateConstants& c, F32Vec& p, F32Vec g, F32Vec& v, F32Vec&) {
    const F32Vec gradient = with_decay(c, p, g);
    v = hn::Add(v, hn::Mul(gradient, gradient));
    const F32Vec denominator = hn::Add(hn::Sqrt(v), all(c.eps));
    p = hn::Sub(p, hn::Div(hn::Mul(gradient, all(c.lr)), denominator));
  }
};

struct LionRule {
  static constexpr size_t kStates = 1;
  static constexpr StateKind kKinds[] = {StateKind::average, StateKind::average};
  static HWY_INLINE void step(const UpdateConstants& c, F32Vec& p, F32Vec g, F32Vec& m, F32Vec&) {
    const F32Vec gradient = hn::Mul(g, all(c.grad_scale));
    const F32Vec direction =
        hn::Add(hn::Mul(m, all(c.beta1)), hn::Mul(gradient, all(c.one_minus_beta1)));
    const F32Vec change = hn::IfThenElse(hn::Gt(hn::Abs(direction), hn::Zero(F32Tag())),
                                         hn::CopySign(all(c.lr), direction), direction);
    p = hn::Sub(hn::Mul(p, all(c.decay)), change);
    m = hn::Add(hn::Mul(m, all(c.beta2)), hn::Mul(gradient, all(c.one_minus_beta2)));
  }
};

struct SgdRule {
  static constexpr size_t kStates = 1;
  static constexpr StateKind kKinds[] = {StateKind::average, StateKind::average};
  static HWY_INLINE void step(const UpdateConstants& c, F32Vec& p, F32Vec g, F32Vec& b, F32Vec&) {
    const F32Vec gradient = with_decay(c, p, g);
    b = c.first_step
            ? gradient
            : hn::Add(hn::Mul(b, all(c.beta1)), hn::Mul(gradient, all(c.one_minus_dampening)));
    const F32Vec change = c.nesterov ? hn::Add(gradient, hn::Mul(b, all(c.beta1))) : b;
    p = hn::Sub(p, hn::Mul(change, all(c.lr)));
  }
};

// Without momentum.
struct PlainSgdRule {
  static constexpr size_t kStates = 0;
  static constexpr StateKind kKinds[] = {StateKind::average, StateKind::average};
  static HWY_INLINE void step(const UpdateConstants& c, F32Vec& p, F32Vec g, F32Vec&, F32Vec&) {
    p = hn::Sub(p, hn::Mul(with_decay(c, p, g), all(c.lr)));
  }
};

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
