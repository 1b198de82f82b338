// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/accumulate.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/accumulate.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

template <class To, class From, bool kAdd>
HWY_NOINLINE void transfer(typename To::Lane* to, const typename From::Lane* from, size_t n) {
  const size_t lanes = hn::Lanes(F32Tag());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    F32Vec value = From::load(from + i);
    if constexpr (kAdd) value = hn::Add(To::load(to + i), value);
    store<To>(value, to + i);
  }
  for (; i < n; ++i) {
    float value = From::get(from[i]);
    if constexpr (kAdd) value = To::get(to[i]) + value;
    to[i] = To::put(value);
  }
}

template <class To, bool kAdd>
void transfer_from(void* to, const void* from, Type from_type, size_t n) {
  auto* dst = static_cast<typename To::Lane*>(to);
  switch (from_type) {
    case Type::f32:
      return transfer<To, F32, kAdd>(dst, static_cast<const float*>(from), n);
    case Type::bf16:
      return transfer<To, Bf16, kAdd>(dst, static_cast<const uint16_t*>(from), n);
    case Type::f16:
      return transfer<To, F16, kAdd>(dst, static_cast<const uint16_t*>(from), n);
  }
}

template <bool kAdd>
void transfer_types(void* to, Type to_type, const void* from, Type from_type, size_t n) {
  switch (to_type) {
    case Type::f32:
      return transfer_from<F32, kAdd>(to, from, from_type, n);
    case Type::bf16:
      return transfer_from<Bf16, kAdd>(to, from, from_type, n);
    case Type::f16:
      return transfer_from<F16, kAdd>(to, from, from_type, n);
  }
}

void accumulate_target(void* dst, Type dst_type, const void* src, Type src_type, size_t n) {
  transfer_types<true>(dst, dst_type, src, src_type, n);
}

void convert_target(void* dst, Type dst_type, const void* src, Type src_type, size_t n) {
  transfer_types<false>(dst, dst_type, src, src_type, n);
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(accumulate_target);
HWY_EXPORT(convert_target);

void accumulate(void* dst, Type dst_type, const void* src, Type src_type, size_t n) {
  HWY_DYNAMIC_DISPATCH(accumulate_target)(dst, dst_type, src, src_type, n);
}

void convert(void* dst, Type dst_type, const void* src, Type src_type, size_t n) {
  if (dst_type == src_type) {
    if (n != 0) std::memmove(dst, src, n * size_of(dst_type));
    return;
  }
  HWY_DYNAMIC_DISPATCH(convert_target)(dst, dst_type, src, src_type, n);
}

}  // namespace meron::kernels
#endif
