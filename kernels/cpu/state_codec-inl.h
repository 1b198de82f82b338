// SPDX-License-Identifier: Apache-2.0
// Vectors of states and their random bits, for the target that is being compiled: see state_code.h.

// Per-target guard (Highway's convention): the file is read again for each target.
#if defined(MERON_KERNELS_CPU_STATE_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERON_KERNELS_CPU_STATE_CODEC_INL_H_
#undef MERON_KERNELS_CPU_STATE_CODEC_INL_H_
#else
#define MERON_KERNELS_CPU_STATE_CODEC_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/state_code.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

using U8Tag = hn::Rebind<uint8_t, F32Tag>;

// The numbers of consecutive elements from `first` on: made once, then added to. Iota goes through
// memory.
HWY_INLINE U32Vec numbers_from(uint32_t first) {
  return hn::Iota(U32Tag(), first);
}

// quant_hash() of the elements' numbers.
HWY_INLINE U32Vec random_bits(uint64_t key, U32Vec numbers) {
  const U32Tag du;
  U32Vec x = hn::Xor(numbers, hn::Set(du, static_cast<uint32_t>(key)));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x21f0aaad));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, static_cast<uint32_t>(key >> 32)));
  x = hn::Mul(x, hn::Set(du, 0x735a2d97));
  return hn::Xor(x, hn::ShiftRight<15>(x));
}

// The random bits below the cut of kBits, to store state kWhich: see below_cut().
template <size_t kWhich, int kBits>
HWY_INLINE U32Vec below_cut(U32Vec random) {
  if constexpr (kWhich == 1) return hn::ShiftRight<32 - kBits>(random);
  return hn::And(random, hn::Set(U32Tag(), (1u << kBits) - 1));
}

struct F32State {
  using Lane = float;
  static constexpr bool kRandom = false;
  static HWY_INLINE F32Vec load(const float* from) { return F32::load(from); }
  template <size_t kWhich>
  static HWY_INLINE void store(F32Vec v, U32Vec, float* to) {
    hn::StoreU(v, F32Tag(), to);
  }
};

struct Bf16State {
  using Lane = uint16_t;
  static constexpr bool kRandom = true;
  static HWY_INLINE F32Vec load(const uint16_t* from) { return Bf16::load(from); }
  template <size_t kWhich>
  static HWY_INLINE void store(F32Vec v, U32Vec random, uint16_t* to) {
    const U32Tag du;
    const U32Vec bits = hn::BitCast(du, v);
    const U32Vec below = below_cut<kWhich, kBf16Cut>(random);
    const U32Vec rounded = hn::ShiftRight<16>(hn::Add(bits, below));
    const U32Vec quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
    const U32Vec upper = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    hn::StoreU(truncate_u16(upper), U16Tag(), to);
  }
};

HWY_INLINE U32Vec magnitude_bits(F32Vec v) {
  return hn::BitCast(U32Tag(), hn::Abs(v));
}

template <StateKind kKind>
HWY_INLINE F32Vec decode_codes(const uint8_t* from, F32Vec scale) {
  const F32Tag d;
  const U32Tag du;
  const U32Vec code = hn::PromoteTo(du, hn::LoadU(U8Tag(), from));
  U32Vec size = code;
  if constexpr (kKind == StateKind::average) size = hn::And(code, hn::Set(du, 0x7f));
  const U32Vec y = hn::ShiftLeft<kCodeCut>(hn::Add(size, hn::Set(du, Code<kKind>::kBase)));
  F32Vec x = hn::Sub(hn::BitCast(d, y), hn::Set(d, Code<kKind>::kOffset));
  if constexpr (kKind == StateKind::average) {
    x = hn::Or(x, hn::BitCast(d, hn::ShiftLeft<24>(hn::AndNot(hn::Set(du, 0x7f), code))));
  }
  return hn::Mul(x, scale);
}

template <StateKind kKind, size_t kWhich>
HWY_INLINE void encode_codes(F32Vec v, F32Vec inverse, U32Vec random, uint8_t* to) {
  const F32Tag d;
  const U32Tag du;
  const F32Vec scaled = hn::Mul(v, inverse);
  F32Vec x;
  if constexpr (kKind == StateKind::average) {
    x = hn::Abs(scaled);
  } else {
    const F32Vec least = hn::Set(d, Code<kKind>::kLeast);
    x = hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), hn::Max(scaled, least));
  }
  const U32Vec y = hn::BitCast(du, hn::Add(x, hn::Set(d, Code<kKind>::kOffset)));
  const U32Vec cut = hn::ShiftRight<kCodeCut>(hn::Add(y, below_cut<kWhich, kCodeCut>(random)));
  U32Vec code = hn::Sub(cut, hn::Set(du, Code<kKind>::kBase));
  if constexpr (kKind == StateKind::average) {
    const U32Vec sign = hn::ShiftRight<31>(hn::BitCast(du, scaled));
    code = hn::Or(code, hn::ShiftLeft<7>(sign));
  }
  hn::StoreU(hn::TruncateTo(U8Tag(), code), U8Tag(), to);
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
