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

// By the same number of bits in all lanes: one instruction if each lane may have its own number.
HWY_INLINE U32Vec shift_right(U32Vec v, uint32_t bits) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::Shr(v, hn::Set(U32Tag(), bits));
#else
  return hn::ShiftRightSame(v, static_cast<int>(bits));
#endif
}
HWY_INLINE U32Vec shift_left(U32Vec v, uint32_t bits) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::Shl(v, hn::Set(U32Tag(), bits));
#else
  return hn::ShiftLeftSame(v, static_cast<int>(bits));
#endif
}

// The random bits below the cut, to store state kWhich: see below_cut().
template <size_t kWhich>
HWY_INLINE U32Vec below_cut(U32Vec random, uint32_t cut) {
  if constexpr (kWhich == 1) return shift_right(random, 32 - cut);
  return hn::And(random, hn::Set(U32Tag(), (1u << cut) - 1));
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
    const U32Vec below = below_cut<kWhich>(random, kBf16Cut);
    const U32Vec rounded = hn::ShiftRight<16>(hn::Add(bits, below));
    const U32Vec quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
    const U32Vec upper = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    hn::StoreU(truncate_u16(upper), U16Tag(), to);
  }
};

// The range of a block, lane by lane.
struct RangeLanes {
  U32Vec largest, least;

  RangeLanes() : largest(hn::Zero(U32Tag())), least(hn::Set(U32Tag(), UINT32_MAX)) {}
  template <StateKind kKind>
  HWY_INLINE void include(F32Vec v) {
    const U32Tag du;
    const U32Vec bits = kKind == StateKind::square ? hn::BitCast(du, v) : magnitude_bits(v);
    largest = hn::Max(largest, bits);
    if constexpr (kKind == StateKind::square) {
      least = hn::Min(least, hn::Sub(bits, hn::Set(du, 1)));
    }
  }
  HWY_INLINE BlockRange range() const {
    const U32Tag du;
    return {hn::GetLane(hn::MaxOfLanes(du, largest)), hn::GetLane(hn::MinOfLanes(du, least))};
  }
};

HWY_INLINE U32Vec load_codes(const uint8_t* from) {
  return hn::PromoteTo(U32Tag(), hn::LoadU(U8Tag(), from));
}
HWY_INLINE void store_codes(U32Vec codes, uint8_t* to) {
  hn::StoreU(hn::TruncateTo(U8Tag(), codes), U8Tag(), to);
}

HWY_INLINE F32Vec decode_codes(const AverageCode& code, const uint8_t* from) {
  const F32Tag d;
  const U32Tag du;
  const U32Vec codes = load_codes(from);
  const U32Vec size = hn::Add(hn::And(codes, hn::Set(du, 0x7f)), hn::Set(du, code.base));
  const F32Vec sum = hn::BitCast(d, shift_left(size, code.cut));
  const U32Vec sign = hn::ShiftLeft<24>(hn::AndNot(hn::Set(du, 0x7f), codes));
  const F32Vec x = hn::Or(hn::Sub(sum, hn::Set(d, code.offset)), hn::BitCast(d, sign));
  return hn::Mul(x, hn::Set(d, code.scale));
}

// The bits one step below those of code 1.
HWY_INLINE U32Vec below_base(const SquareCode& code) {
  return hn::Set(U32Tag(), code.base - (1u << code.shift));
}

HWY_INLINE F32Vec decode_codes(const SquareCode& code, const uint8_t* from) {
  const U32Tag du;
  const U32Vec codes = load_codes(from);
  const U32Vec bits = hn::Add(shift_left(codes, code.shift), below_base(code));
  return hn::BitCast(F32Tag(), hn::IfThenZeroElse(hn::Eq(codes, hn::Zero(du)), bits));
}

template <size_t kWhich>
HWY_INLINE void encode_codes(const AverageCode& code, F32Vec v, U32Vec random, uint8_t* to) {
  const F32Tag d;
  const U32Tag du;
  const F32Vec scaled = hn::Mul(v, hn::Set(d, code.inverse));
  const U32Vec sum = hn::BitCast(du, hn::Add(hn::Abs(scaled), hn::Set(d, code.offset)));
  const U32Vec cut = shift_right(hn::Add(sum, below_cut<kWhich>(random, code.cut)), code.cut);
  const U32Vec sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(du, scaled)));
  store_codes(hn::Or(hn::Sub(cut, hn::Set(du, code.base)), sign), to);
}

template <size_t kWhich>
HWY_INLINE void encode_codes(const SquareCode& code, F32Vec v, U32Vec random, uint8_t* to) {
  const U32Tag du;
  const U32Vec bits = hn::Add(hn::BitCast(du, v), below_cut<kWhich>(random, code.shift));
  const U32Vec above = hn::Sub(hn::Max(bits, hn::Set(du, code.base)), below_base(code));
  const auto positive = hn::RebindMask(du, hn::Gt(v, hn::Zero(F32Tag())));
  store_codes(hn::IfThenElseZero(positive, shift_right(above, code.shift)), to);
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
