// SPDX-License-Identifier: Apache-2.0
// Rounds and packs a block with a known scale, for the target that is being compiled.

// Per-target guard (Highway's convention): the file is read again for each target.
#if defined(MERON_KERNELS_CPU_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERON_KERNELS_CPU_ENCODE_INL_H_
#undef MERON_KERNELS_CPU_ENCODE_INL_H_
#else
#define MERON_KERNELS_CPU_ENCODE_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"

#if MERON_QUANT_VECTORS
HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

using BytesTag = hn::Repartition<uint8_t, F32Tag>;

// Parameters of all blocks of a call.
struct Encoding {
  QuantFormat format;
  uint64_t seed;
  float beta;
  QuantError* error;
  bool stream;  // past the caches; the payload is then aligned to kLine
};

template <class D>
HWY_INLINE void put_bytes(hn::Vec<D> v, D d, uint8_t* to, bool stream) {
  if (stream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// The low bytes of x's lanes, then those of y's.
HWY_INLINE hn::Vec<BytesTag> pack_bytes(Wide16Vec x, Wide16Vec y) {
  alignas(16) static constexpr uint8_t kEvenOdd[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                       1, 3, 5, 7, 9, 11, 13, 15};
  const Wide16Tag d;
  const BytesTag d8;
  const Wide16Vec mixed =
      hn::Or(hn::And(x, hn::Set(d, 0xff)), hn::ShiftLeft<8>(y));  // x0 y0 x1 y1 ...
  const auto blocks = hn::TableLookupBytes(hn::BitCast(d8, mixed), hn::LoadDup128(d8, kEvenOdd));
  return hn::BitCast(d8, reorder(U32Tag(), hn::BitCast(U32Tag(), blocks), kFromBlocks));
}

// Writes the run whose integers are the low bits of q's lanes: one vector for each pair.
template <uint32_t kBits>
HWY_INLINE void put_run(const Wide16Vec* q, uint8_t* to, bool stream) {
  const Wide16Tag d;
  const BytesTag d8;
  if constexpr (kBits == 8) {
    MERON_UNROLL
    for (size_t k = 0; k < kPairs; k += 2) {
      put_bytes(pack_bytes(q[k], q[k + 1]), d8, to + k * kPair, stream);
    }
    return;
  }
  Wide16Vec both[kPairs / 2];
  MERON_UNROLL
  for (size_t k = 0; k < kPairs / 2; ++k) {
    both[k] = hn::Or(hn::And(q[k], hn::Set(d, 0xf)), hn::ShiftLeft<4>(q[k + kPairs / 2]));
  }
  if constexpr (kPairs == 2) {
    const hn::Half<BytesTag> half;
    put_bytes(hn::LowerHalf(half, pack_bytes(both[0], both[0])), half, to, stream);
  } else {
    MERON_UNROLL
    for (size_t k = 0; k < kPairs / 2; k += 2) {
      put_bytes(pack_bytes(both[k], both[k + 1]), d8, to + k * kPair, stream);
    }
  }
}

// Sums of squares in units of a block's step: of the rounding errors, and of the values.
struct Lost {
  F32Vec error, all;

  HWY_INLINE Lost() : error(hn::Zero(F32Tag())), all(hn::Zero(F32Tag())) {}

  HWY_INLINE void add(F32Vec difference, F32Vec value) {
    error = hn::Add(error, hn::Mul(difference, difference));
    all = hn::Add(all, hn::Mul(value, value));
  }
  // `unit`: the value of a unit.
  HWY_INLINE void report(QuantError& to, double unit) const {
    const F32Tag d;
    to.add_block(hn::GetLane(hn::SumOfLanes(d, error)) * unit * unit,
                 hn::GetLane(hn::SumOfLanes(d, all)) * unit * unit);
  }
};

// Rounds v * inverse to the nearest integer, which is then in the low bits: the addition leaves no
// space for a fraction.
template <bool kError>
HWY_INLINE U32Vec nearest(F32Vec v, F32Vec inverse, Lost& lost) {
  const F32Vec magic = hn::Set(F32Tag(), 0x1.8p23f);
  const F32Vec scaled = hn::Mul(v, inverse), rounded = hn::Add(scaled, magic);
  if constexpr (kError) lost.add(hn::Sub(scaled, hn::Sub(rounded, magic)), scaled);
  return hn::BitCast(U32Tag(), rounded);
}

// To one of both neighbours at random. `inverse` is scaled by 2^24, `lower` are the elements'
// numbers.
HWY_INLINE U32Vec at_random(F32Vec v, F32Vec inverse, U32Vec lower, uint64_t key) {
  const U32Tag du;
  U32Vec x = hn::Xor(lower, hn::Set(du, static_cast<uint32_t>(key)));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x21f0aaadu));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, static_cast<uint32_t>(key >> 32)));
  x = hn::Mul(x, hn::Set(du, 0x735a2d97u));
  x = hn::Xor(x, hn::ShiftRight<15>(x));
  const U32Vec scaled = hn::BitCast(du, hn::NearestInt(hn::Mul(v, inverse)));
  return hn::ShiftRight<24>(hn::Add(scaled, hn::ShiftRight<8>(x)));
}

// Memory idles while a batch is encoded from the cache, unless the next one is prefetched.
template <class In>
struct InOrder {
  const typename In::Lane* from;
  const typename In::Lane* next;  // as long
  HWY_INLINE Run run(size_t r) const {
    constexpr size_t kLine = 64 / sizeof(typename In::Lane);
    MERON_UNROLL
    for (size_t i = 0; i < kQuantRun; i += kLine) hwy::Prefetch(next + r * kQuantRun + i);
    return load_run<In>(from + r * kQuantRun);
  }
};
struct Held {
  const float* from;
  HWY_INLINE Run run(size_t r) const { return load_held(from + r * kQuantRun); }
};

// With kError, reports what is lost. The scaled transform divides sums of squares by 64.
template <uint32_t kBits, bool kError, class Source>
HWY_INLINE void encode_nearest(const Encoding& e, Source source, float scale, uint8_t* payload) {
  const F32Vec inverse = hn::Set(F32Tag(), scale);
  Lost lost;
  for (size_t r = 0; r < e.format.block / kQuantRun; ++r) {
    const Run t = source.run(r);
    Wide16Vec q[kPairs];
    MERON_UNROLL
    for (size_t k = 0; k < kPairs; ++k) {
      const U32Vec even = nearest<kError>(t.v[2 * k], inverse, lost);
      q[k] = join_low(even, nearest<kError>(t.v[2 * k + 1], inverse, lost));
    }
    put_run<kBits>(q, payload + r * (kQuantRun / 8 * kBits), e.stream);
  }
  if constexpr (kError) {
    lost.report(*e.error, (e.format.hadamard ? 8.0 : 1.0) / static_cast<double>(scale));
  }
}

template <uint32_t kBits>
HWY_NOINLINE void encode_at_random(const Encoding& e, const float* t, float scale, uint64_t number,
                                   uint8_t* payload) {
  const U32Tag du;
  const F32Vec inverse = hn::Set(F32Tag(), scale * 0x1p24f);
  const U32Vec even = hn::ShiftLeft<1>(hn::Iota(du, 0));
  for (size_t r = 0; r < e.format.block / kQuantRun; ++r, number += kQuantRun) {
    const uint64_t key = quant_key(e.seed, static_cast<uint32_t>(number >> 32));
    const Run run = load_held(t + r * kQuantRun);
    Wide16Vec q[kPairs];
    MERON_UNROLL
    for (size_t k = 0; k < kPairs; ++k) {
      const auto first = static_cast<uint32_t>(number + k * kPair);
      q[k] = join_low(
          at_random(run.v[2 * k], inverse, hn::Add(even, hn::Set(du, first)), key),
          at_random(run.v[2 * k + 1], inverse, hn::Add(even, hn::Set(du, first + 1)), key));
    }
    put_run<kBits>(q, payload + r * (kQuantRun / 8 * kBits), e.stream);
  }
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MERON_QUANT_VECTORS

#endif  // per-target guard
