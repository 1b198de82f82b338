// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/adamw.h"

#include "kernels/cpu/adamw_element.h"
#include "kernels/cpu/copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

// Out, for none.
struct None {
  using Lane = float;
};

// The copy of p to `out`, or p itself if there is none, bypasses the caches if kStream: then
// it is aligned to kLine.
//
// The hardware prefetchers follow all the streams and the arithmetic hides behind memory: neither
// software prefetch, nor unrolling, nor streaming stores to arrays that only this core reads made
// it faster. A vector's loads all precede its stores, so that `out` may be `g`.
template <class Grad, class Out, bool kStream>
HWY_NOINLINE Largest update(const AdamWConstants& c, float* p, const typename Grad::Lane* g,
                            float* m, float* v, typename Out::Lane* out, size_t n) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  const F32Vec grad_scale = hn::Set(d, c.grad_scale);
  const F32Vec beta1 = hn::Set(d, c.beta1);
  const F32Vec one_minus_beta1 = hn::Set(d, c.one_minus_beta1);
  const F32Vec beta2 = hn::Set(d, c.beta2);
  const F32Vec one_minus_beta2 = hn::Set(d, c.one_minus_beta2);
  const F32Vec inverse_root_bias2 = hn::Set(d, c.inverse_root_bias2);
  const F32Vec eps = hn::Set(d, c.eps);
  const F32Vec decay = hn::Set(d, c.decay);
  const F32Vec step_size = hn::Set(d, c.step_size);

  const U32Tag du;
  U32Vec largest_value = hn::Zero(du), largest_state = hn::Zero(du);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const F32Vec gradient = hn::Mul(Grad::load(g + i), grad_scale);
    const F32Vec first =
        hn::Add(hn::Mul(hn::LoadU(d, m + i), beta1), hn::Mul(gradient, one_minus_beta1));
    const F32Vec second = hn::Add(hn::Mul(hn::LoadU(d, v + i), beta2),
                                  hn::Mul(hn::Mul(gradient, one_minus_beta2), gradient));
    const F32Vec denominator = hn::Add(hn::Mul(hn::Sqrt(second), inverse_root_bias2), eps);
    const F32Vec param = hn::Sub(hn::Mul(hn::LoadU(d, p + i), decay),
                                 hn::Div(hn::Mul(first, step_size), denominator));
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    largest_state = hn::Max(largest_state, hn::BitCast(du, second));
    put<F32, kStream && hwy::IsSame<Out, None>()>(param, p + i);
    if constexpr (!hwy::IsSame<Out, None>()) {
      largest_value = hn::Max(largest_value, magnitude_bits(param));
      put<Out, kStream>(param, out + i);
    }
  }
  Largest largest{hn::GetLane(hn::MaxOfLanes(du, largest_value)),
                  hn::GetLane(hn::MaxOfLanes(du, largest_state))};
  for (; i < n; ++i) {
    adamw_element(c, p[i], Grad::get(g[i]), m[i], v[i]);
    largest.include({0, magnitude_of(v[i])});
    if constexpr (!hwy::IsSame<Out, None>()) {
      largest.include({magnitude_of(p[i]), 0});
      out[i] = Out::put(p[i]);
    }
  }
  if constexpr (kStream) hwy::FlushStream();
  return largest;
}

template <class Grad, class Out>
Largest update_to(const AdamWConstants& c, float* p, const typename Grad::Lane* g, float* m,
                  float* v, void* output, bool handed_over, size_t n) {
  auto* out = static_cast<typename Out::Lane*>(output);
  if (output != g && worth_streaming(output, n * sizeof(*out), handed_over)) {
    return update<Grad, Out, true>(c, p, g, m, v, out, n);
  }
  return update<Grad, Out, false>(c, p, g, m, v, out, n);
}

template <class Grad>
Largest update_out(const AdamWConstants& c, float* p, const void* gradients, float* m, float* v,
                   void* out, Type out_type, bool handed_over, size_t n) {
  const auto* g = static_cast<const typename Grad::Lane*>(gradients);
  if (out == nullptr && handed_over && worth_streaming(p, n * sizeof(*p), true)) {
    return update<Grad, None, true>(c, p, g, m, v, nullptr, n);
  }
  if (out == nullptr) return update<Grad, None, false>(c, p, g, m, v, nullptr, n);
  switch (out_type) {
    case Type::f32:
      return update_to<Grad, F32>(c, p, g, m, v, out, handed_over, n);
    case Type::bf16:
      return update_to<Grad, Bf16>(c, p, g, m, v, out, handed_over, n);
    case Type::f16:
      return update_to<Grad, F16>(c, p, g, m, v, out, handed_over, n);
  }
  return {};
}

Largest adamw_target(const AdamWConstants& c, float* p, const void* g, Type g_type, float* m,
                     float* v, void* out, Type out_type, bool handed_over, size_t n) {
  switch (g_type) {
    case Type::f32:
      return update_out<F32>(c, p, g, m, v, out, out_type, handed_over, n);
    case Type::bf16:
      return update_out<Bf16>(c, p, g, m, v, out, out_type, handed_over, n);
    case Type::f16:
      return update_out<F16>(c, p, g, m, v, out, out_type, handed_over, n);
  }
  return {};
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(adamw_target);

Largest adamw(const AdamW& step, float* p, const void* g, Type g_type, float* m, float* v,
              void* out, Type out_type, size_t n, bool handed_over) {
  return HWY_DYNAMIC_DISPATCH(adamw_target)(AdamWConstants(step), p, g, g_type, m, v, out, out_type,
                                            handed_over, n);
}

}  // namespace meron::kernels
#endif
