// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/reduce.h"

#include "kernels/cpu/copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

// The terms of a sum, at the first element of a range.
template <class In>
struct Terms {
  const float* start;  // null: the sum starts with in[0]
  const void* const* in;
  size_t count;
  float scale;

  const typename In::Lane* input(size_t k) const {
    return static_cast<const typename In::Lane*>(in[k]);
  }

  HWY_INLINE float element(size_t i) const {
    size_t k = 0;
    float sum = start != nullptr ? start[i] : count != 0 ? In::get(input(k++)[i]) : 0.0f;
    for (; k < count; ++k) sum += In::get(input(k)[i]);
    return sum * scale;
  }
};

// Puts the results of four vectors from element i on into a0 to a3: four, so that the loop over the
// inputs has work for several loads.
template <class In>
HWY_INLINE void sum_four(const Terms<In>& t, size_t i, F32Vec& a0, F32Vec& a1, F32Vec& a2,
                         F32Vec& a3) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  size_t k = 0;
  if (t.start != nullptr) {
    a0 = hn::LoadU(d, t.start + i);
    a1 = hn::LoadU(d, t.start + i + lanes);
    a2 = hn::LoadU(d, t.start + i + 2 * lanes);
    a3 = hn::LoadU(d, t.start + i + 3 * lanes);
  } else if (t.count != 0) {
    const auto* from = t.input(k++) + i;
    a0 = In::load(from);
    a1 = In::load(from + lanes);
    a2 = In::load(from + 2 * lanes);
    a3 = In::load(from + 3 * lanes);
  } else {
    a0 = a1 = a2 = a3 = hn::Zero(d);
  }
  for (; k < t.count; ++k) {
    const auto* from = t.input(k) + i;
    a0 = hn::Add(a0, In::load(from));
    a1 = hn::Add(a1, In::load(from + lanes));
    a2 = hn::Add(a2, In::load(from + 2 * lanes));
    a3 = hn::Add(a3, In::load(from + 3 * lanes));
  }
  const F32Vec scale = hn::Set(d, t.scale);
  a0 = hn::Mul(a0, scale);
  a1 = hn::Mul(a1, scale);
  a2 = hn::Mul(a2, scale);
  a3 = hn::Mul(a3, scale);
}

// kStream: past the caches; `out` is then aligned to 64 bytes.
// kSquares: each block's results are also kept in `block` until their squares are summed, because
// `out` should not be read back.
template <class In, bool kStream, bool kSquares>
HWY_NOINLINE void sum_range(float* out, const Terms<In>& t, size_t n, ExactSum* squares) {
  const F32Tag d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float block[kBlock];
  size_t i = 0;
  while (i + kBlock <= n) {
    for (size_t j = 0; j < kBlock; j += 4 * lanes, i += 4 * lanes) {
      F32Vec a0, a1, a2, a3;
      sum_four(t, i, a0, a1, a2, a3);
      put<F32, kStream>(a0, out + i);
      put<F32, kStream>(a1, out + i + lanes);
      put<F32, kStream>(a2, out + i + 2 * lanes);
      put<F32, kStream>(a3, out + i + 3 * lanes);
      if constexpr (kSquares) {
        hn::StoreU(a0, d, block + j);
        hn::StoreU(a1, d, block + j + lanes);
        hn::StoreU(a2, d, block + j + 2 * lanes);
        hn::StoreU(a3, d, block + j + 3 * lanes);
      }
    }
    if constexpr (kSquares) squares->add(sum_of_squares(block));
  }
  if (i < n) {
    size_t j = 0;
    for (; i < n; ++i, ++j) out[i] = block[j] = t.element(i);
    if constexpr (kSquares) {
      for (; j < kBlock; ++j) block[j] = 0.0f;
      squares->add(sum_of_squares(block));
    }
  }
  if constexpr (kStream) hwy::FlushStream();
}

template <class In>
void sum_as(float* out, bool accumulate, const void* const* in, size_t count, float scale, size_t n,
            ExactSum* squares, bool handed_over) {
  bool read = accumulate;
  for (size_t k = 0; k < count; ++k) read = read || in[k] == out;
  const bool stream =
      (handed_over || !read) && worth_streaming(out, n * sizeof(float), handed_over);
  const Terms<In> terms{accumulate ? out : nullptr, in, count, scale};
  if (stream) {
    if (squares != nullptr) return sum_range<In, true, true>(out, terms, n, squares);
    return sum_range<In, true, false>(out, terms, n, nullptr);
  }
  if (squares != nullptr) return sum_range<In, false, true>(out, terms, n, squares);
  return sum_range<In, false, false>(out, terms, n, nullptr);
}

void reduce_target(float* out, bool accumulate, const void* const* in, size_t count, Type type,
                   float scale, size_t n, ExactSum* squares, bool handed_over) {
  switch (type) {
    case Type::f32:
      return sum_as<F32>(out, accumulate, in, count, scale, n, squares, handed_over);
    case Type::bf16:
      return sum_as<Bf16>(out, accumulate, in, count, scale, n, squares, handed_over);
    case Type::f16:
      return sum_as<F16>(out, accumulate, in, count, scale, n, squares, handed_over);
  }
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(reduce_target);

void reduce(float* out, bool accumulate, const void* const* in, size_t count, Type type,
            float scale, size_t n, ExactSum* squares, bool handed_over) {
  HWY_DYNAMIC_DISPATCH(reduce_target)
  (out, accumulate, in, count, type, scale, n, squares, handed_over);
}

}  // namespace meron::kernels
#endif
