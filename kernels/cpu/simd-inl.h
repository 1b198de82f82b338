// SPDX-License-Identifier: Apache-2.0
// Loads and stores of each element type as vectors of f32, for the target that is being compiled.
// Included by the kernels' sources only, once per Highway target.
//
// The 16-bit formats are converted by code of our own, or by an instruction where one exists that
// has exactly the semantics of half.h: Highway's own narrowing does not round.

// Per-target guard (Highway's convention): the file is read again for each target.
#if defined(MERON_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERON_KERNELS_CPU_SIMD_INL_H_
#undef MERON_KERNELS_CPU_SIMD_INL_H_
#else
#define MERON_KERNELS_CPU_SIMD_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/half.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a block is a multiple of the vector.
using F32Tag = hn::CappedTag<float, 16>;
using F32Vec = hn::Vec<F32Tag>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using U32Vec = hn::Vec<U32Tag>;
using U16Tag = hn::Rebind<uint16_t, F32Tag>;
using U16Vec = hn::Vec<U16Tag>;

HWY_INLINE U32Vec load_u16(const uint16_t* from) {
  return hn::PromoteTo(U32Tag(), hn::LoadU(U16Tag(), from));
}

HWY_INLINE U16Vec truncate_u16(U32Vec bits) {
  return hn::TruncateTo(U16Tag(), bits);
}

// Without the sign: as an integer, a NaN is above infinity.
HWY_INLINE U32Vec magnitude_bits(F32Vec v) {
  return hn::BitCast(U32Tag(), hn::Abs(v));
}

// An element type: how lanes are read into f32 and what is stored for f32; `get` and `put` are the
// same for one element.
struct F32 {
  using Lane = float;
  using Tag = F32Tag;
  static HWY_INLINE F32Vec load(const float* from) { return hn::LoadU(F32Tag(), from); }
  static HWY_INLINE F32Vec pack(F32Vec v) { return v; }
  static HWY_INLINE float get(float lane) { return lane; }
  static HWY_INLINE float put(float value) { return value; }
};

struct Bf16 {
  using Lane = uint16_t;
  using Tag = U16Tag;
  static HWY_INLINE F32Vec load(const uint16_t* from) {
    return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(load_u16(from)));
  }
  static HWY_INLINE U16Vec pack(F32Vec v) {
    const U32Tag du;
    const U32Vec bits = hn::BitCast(du, v);
    const U32Vec upper = hn::ShiftRight<16>(bits);
    const U32Vec odd = hn::And(upper, hn::Set(du, 1));
    const U32Vec rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
    const U32Vec quiet = hn::Or(upper, hn::Set(du, 0x40));
    return truncate_u16(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded));
  }
  static HWY_INLINE float get(uint16_t lane) { return f32_from_bf16(lane); }
  static HWY_INLINE uint16_t put(float value) { return bf16_from_f32(value); }
};

struct F16 {
  using Lane = uint16_t;
  using Tag = U16Tag;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  using F16Tag = hn::Rebind<hwy::float16_t, F32Tag>;
  static HWY_INLINE F32Vec load(const uint16_t* from) {
    return hn::PromoteTo(F32Tag(), hn::BitCast(F16Tag(), hn::LoadU(U16Tag(), from)));
  }
  static HWY_INLINE U16Vec pack(F32Vec v) {
    return hn::BitCast(U16Tag(), hn::DemoteTo(F16Tag(), v));
  }
#else
  static HWY_INLINE F32Vec load(const uint16_t* from) {
    const F32Tag d;
    const U32Tag du;
    const hn::RebindToSigned<F32Tag> di;
    const U32Vec bits = load_u16(from);
    const U32Vec sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
    const U32Vec magnitude = hn::And(bits, hn::Set(du, 0x7fff));
    const U32Vec shifted = hn::ShiftLeft<13>(magnitude);
    const U32Vec normal = hn::Add(shifted, hn::Set(du, 0x38000000));
    const F32Vec scaled =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1p-24f));  // exact
    const U32Vec infinite = hn::Or(shifted, hn::Set(du, 0x7f800000));
    const U32Vec quiet =
        hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du, 0x7c00)), hn::Set(du, 0x400000));
    U32Vec result =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), hn::BitCast(du, scaled), normal);
    result =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7bff)), hn::Or(infinite, quiet), result);
    return hn::BitCast(d, hn::Or(result, sign));
  }
  static HWY_INLINE U16Vec pack(F32Vec v) {
    const F32Tag d;
    const U32Tag du;
    const U32Vec bits = hn::BitCast(du, v);
    const U32Vec magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    const U32Vec sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
    const U32Vec upper = hn::ShiftRight<13>(magnitude);
    const U32Vec odd = hn::And(upper, hn::Set(du, 1));
    // 0xfff - 0x38000000: rounds and changes the bias at once.
    const U32Vec normal =
        hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xc8000fffu))));
    // Added to 0.5, whose last bit is worth 2^-24, a small value is rounded by the addition.
    const U32Vec subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))),
                hn::Set(du, 0x3f000000));
    const U32Vec nan = hn::Or(hn::And(upper, hn::Set(du, 0x3ff)), hn::Set(du, 0x7e00));
    U32Vec result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000)), subnormal, normal);
    result =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefff)), hn::Set(du, 0x7c00), result);
    result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, result);
    return truncate_u16(hn::Or(result, sign));
  }
#endif

  static HWY_INLINE float get(uint16_t lane) {
    return f32_from_f16(lane);
  }
  static HWY_INLINE uint16_t put(float value) {
    return f16_from_f32(value);
  }
};

template <class Format>
HWY_INLINE void store(F32Vec v, typename Format::Lane* to) {
  hn::StoreU(Format::pack(v), typename Format::Tag(), to);
}

// The same past the caches, to an aligned address, where a vector is wide enough for it.
template <class Format>
HWY_INLINE void stream(F32Vec v, typename Format::Lane* to) {
  using Lane = typename Format::Lane;
  if constexpr (hn::MaxLanes(F32Tag()) * sizeof(Lane) >= HWY_STREAM_MULTIPLE) {
    hn::Stream(Format::pack(v), typename Format::Tag(), to);
  } else {
    store<Format>(v, to);
  }
}

template <class Format, bool kStream>
HWY_INLINE void put(F32Vec v, typename Format::Lane* to) {
  if constexpr (kStream) {
    stream<Format>(v, to);
  } else {
    store<Format>(v, to);
  }
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
