// SPDX-License-Identifier: Apache-2.0
// What the quantization kernels share, for the target that is being compiled: a run of 64 elements
// in registers, its transform, its decoding, and sums of decoded runs.
//
// A run is held as pairs of vectors: the even elements of a stretch of memory and its odd ones. To
// split a vector of 16-bit elements or integers that way, or to join it, takes a shift and a blend,
// where keeping the order would take conversions across the whole register.

// Per-target guard (Highway's convention): the file is read again for each target.
#if defined(MERON_KERNELS_CPU_QUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERON_KERNELS_CPU_QUANT_INL_H_
#undef MERON_KERNELS_CPU_QUANT_INL_H_
#else
#define MERON_KERNELS_CPU_QUANT_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/simd-inl.h"

// Targets without vectors, or with vectors that cannot be held in arrays, run the reference.
#undef MERON_QUANT_VECTORS
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE
#define MERON_QUANT_VECTORS 0
#else
#define MERON_QUANT_VECTORS 1
#endif

// Sanitizers check every access: unrolled, that takes the compiler three times as long.
#undef MERON_UNROLL
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MERON_UNROLL
#elif HWY_COMPILER_CLANG
#define MERON_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MERON_UNROLL _Pragma("GCC unroll 16")
#endif

#if MERON_QUANT_VECTORS
HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

using I32Tag = hn::RebindToSigned<F32Tag>;
using I32Vec = hn::Vec<I32Tag>;
using Wide16Tag = hn::Repartition<uint16_t, F32Tag>;  // a full vector of 16-bit lanes
using Wide16Vec = hn::Vec<Wide16Tag>;

inline constexpr size_t kLanes = hn::MaxLanes(F32Tag());
inline constexpr size_t kPair = 2 * kLanes;          // elements of a pair of vectors
inline constexpr size_t kPairs = kQuantRun / kPair;  // of a run
inline constexpr size_t kRunVectors = 2 * kPairs;

struct Run {
  F32Vec v[kRunVectors];  // even and odd elements of the first pair, of the second, ...
};

// --- Between pairs and the order of memory

// Lane i of the joined order for lane i: {0, 1, half, half + 1, 2, 3, half + 2, ...}; `kBack` is
// the inverse. InterleaveLower and InterleaveUpper, which work on blocks of four lanes, then see
// what makes them yield the order of memory.
template <bool kBack>
struct BlockOrder {
  constexpr BlockOrder() {
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint32_t from = i % 4 / 2 * (kLanes / 2) + i / 4 * 2 + i % 2;
      if (kBack) {
        lane[from] = static_cast<int32_t>(i);
      } else {
        lane[i] = static_cast<int32_t>(from);
      }
    }
  }
  alignas(64) int32_t lane[kLanes] = {};
};
inline constexpr BlockOrder<false> kToBlocks;
inline constexpr BlockOrder<true> kFromBlocks;

template <class D, bool kBack>
HWY_INLINE hn::Vec<D> reorder(D d, hn::Vec<D> v, const BlockOrder<kBack>& order) {
  if constexpr (kLanes == 4) return v;
  return hn::TableLookupLanes(v, hn::SetTableIndices(d, order.lane));
}

HWY_INLINE void join(F32Vec even, F32Vec odd, F32Vec& first, F32Vec& second) {
  const F32Tag d;
  even = reorder(d, even, kToBlocks);
  odd = reorder(d, odd, kToBlocks);
  first = hn::InterleaveLower(d, even, odd);
  second = hn::InterleaveUpper(d, even, odd);
}

HWY_INLINE void split(F32Vec first, F32Vec second, F32Vec& even, F32Vec& odd) {
  even = hn::ConcatEven(F32Tag(), second, first);
  odd = hn::ConcatOdd(F32Tag(), second, first);
}

// Low halves of even and odd lanes' bits, in the order of memory.
HWY_INLINE Wide16Vec join_low(U32Vec even, U32Vec odd) {
  const Wide16Tag d;
  return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<16>(odd)), hn::BitCast(d, even));
}

template <class In>
HWY_INLINE void load_pair(const typename In::Lane* from, F32Vec& even, F32Vec& odd) {
  if constexpr (hwy::IsSame<In, Bf16>()) {
    const U32Tag du;
    const U32Vec both = hn::BitCast(du, hn::LoadU(Wide16Tag(), from));
    even = hn::BitCast(F32Tag(), hn::ShiftLeft<16>(both));
    odd = hn::BitCast(F32Tag(), hn::And(both, hn::Set(du, 0xffff0000u)));
  } else {
    split(In::load(from), In::load(from + kLanes), even, odd);
  }
}

template <class In>
HWY_INLINE Run load_run(const typename In::Lane* from) {
  Run run;
  MERON_UNROLL
  for (size_t k = 0; k < kPairs; ++k) {
    load_pair<In>(from + k * kPair, run.v[2 * k], run.v[2 * k + 1]);
  }
  return run;
}

template <class Out, bool kStream>
HWY_INLINE void put_pair(F32Vec even, F32Vec odd, typename Out::Lane* to) {
  F32Vec first, second;
  join(even, odd, first, second);
  put<Out, kStream>(first, to);
  put<Out, kStream>(second, to + kLanes);
}

HWY_INLINE Run zero_run() {
  Run run;
  MERON_UNROLL
  for (size_t i = 0; i < kRunVectors; ++i) run.v[i] = hn::Zero(F32Tag());
  return run;
}

// A run in a private buffer stays in pairs.
HWY_INLINE Run load_held(const float* from) {
  Run run;
  MERON_UNROLL
  for (size_t i = 0; i < kRunVectors; ++i) run.v[i] = hn::Load(F32Tag(), from + i * kLanes);
  return run;
}
HWY_INLINE void store_held(const Run& run, float* to) {
  MERON_UNROLL
  for (size_t i = 0; i < kRunVectors; ++i) hn::Store(run.v[i], F32Tag(), to + i * kLanes);
}

// --- The transform

// For lanes at distance kApart: the sum in the lower one, the difference in the upper. A product
// with 1 or -1 is exact, so that a fused addition gives the same bits as another one.
template <size_t kApart>
HWY_INLINE F32Vec butterfly_lanes(F32Vec v) {
  const F32Tag d;
  struct Signs {
    constexpr Signs() {
      for (uint32_t i = 0; i < kLanes; ++i) lane[i] = (i & kApart) != 0 ? -1.0f : 1.0f;
    }
    alignas(64) float lane[kLanes] = {};
  };
  static constexpr Signs kSigns;
  F32Vec partner;
  if constexpr (kApart == 1) {
    partner = hn::Shuffle2301(v);
  } else if constexpr (kApart == 2) {
    partner = hn::Shuffle1032(v);
  } else {
    struct Partners {
      constexpr Partners() {
        for (uint32_t i = 0; i < kLanes; ++i) lane[i] = static_cast<int32_t>(i ^ kApart);
      }
      alignas(64) int32_t lane[kLanes] = {};
    };
    static constexpr Partners kPartners;
    partner = hn::TableLookupLanes(v, hn::SetTableIndices(d, kPartners.lane));
  }
  return hn::MulAdd(v, hn::Load(d, kSigns.lane), partner);
}

// The butterflies of quant.h. A stride of 1 is within pairs, those up to kLanes within vectors.
HWY_INLINE void butterflies(Run& run) {
  MERON_UNROLL
  for (size_t k = 0; k < kPairs; ++k) {
    const F32Vec a = run.v[2 * k], b = run.v[2 * k + 1];
    run.v[2 * k] = hn::Add(a, b);
    run.v[2 * k + 1] = hn::Sub(a, b);
  }
  MERON_UNROLL
  for (size_t i = 0; i < kRunVectors; ++i) {
    run.v[i] = butterfly_lanes<2>(butterfly_lanes<1>(run.v[i]));
    if constexpr (kLanes >= 8) run.v[i] = butterfly_lanes<4>(run.v[i]);
    if constexpr (kLanes >= 16) run.v[i] = butterfly_lanes<8>(run.v[i]);
  }
  MERON_UNROLL
  for (size_t apart = 2; apart < kRunVectors; apart *= 2) {
    MERON_UNROLL
    for (size_t i = 0; i < kRunVectors; ++i) {
      if ((i & apart) != 0) continue;
      const F32Vec a = run.v[i], b = run.v[i + apart];
      run.v[i] = hn::Add(a, b);
      run.v[i + apart] = hn::Sub(a, b);
    }
  }
}

// Before encoding: scaled first, so that no sum of finite values overflows.
HWY_INLINE void transform(Run& run) {
  const F32Vec scale = hn::Set(F32Tag(), kTransformScale);
  MERON_UNROLL
  for (size_t i = 0; i < kRunVectors; ++i) run.v[i] = hn::Mul(run.v[i], scale);
  butterflies(run);
}

// --- Decoding

// Where a vector has 16 lanes, 4 bits are decoded by looking them up in it.
template <uint32_t kBits>
inline constexpr bool kLookUp = kBits == 4 && kLanes == 16;

inline constexpr int32_t kNibbles[] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

// The factor of a block's integers, or of their products.
template <uint32_t kBits>
HWY_INLINE F32Vec factor_vector(float factor) {
  const F32Tag d;
  const F32Vec all = hn::Set(d, factor);
  if constexpr (!kLookUp<kBits>) return all;
  return hn::Mul(hn::ConvertTo(d, hn::LoadU(I32Tag(), kNibbles)), all);
}

// The 4 bits of each lane from kFrom on.
template <int kFrom>
HWY_INLINE F32Vec decode_nibbles(U32Vec bits, F32Vec factor) {
  const F32Tag d;
  if constexpr (kLookUp<4>) {
    const U32Vec index = hn::And(hn::ShiftRight<kFrom>(bits), hn::Set(U32Tag(), 15));
    return hn::TableLookupLanes(factor, hn::IndicesFromVec(d, index));
  } else {
    const I32Vec q = hn::ShiftRight<28>(hn::BitCast(I32Tag(), hn::ShiftLeft<28 - kFrom>(bits)));
    return hn::Mul(hn::ConvertTo(d, q), factor);
  }
}

template <uint32_t kBits>
HWY_INLINE Run decode_run(const uint8_t* payload, F32Vec factor) {
  const F32Tag d;
  const I32Tag di;
  const hn::Rebind<int16_t, F32Tag> d16;
  Run run;
  if constexpr (kBits == 8) {
    MERON_UNROLL
    for (size_t k = 0; k < kPairs; ++k) {
      const auto* from = reinterpret_cast<const int16_t*>(payload + k * kPair);
      const I32Vec both = hn::PromoteTo(di, hn::LoadU(d16, from));
      const I32Vec even = hn::ShiftRight<24>(hn::ShiftLeft<24>(both));
      const I32Vec odd = hn::ShiftRight<8>(both);
      run.v[2 * k] = hn::Mul(hn::ConvertTo(d, even), factor);
      run.v[2 * k + 1] = hn::Mul(hn::ConvertTo(d, odd), factor);
    }
  } else {
    MERON_UNROLL
    for (size_t k = 0; k < kPairs / 2; ++k) {
      const U32Vec four = load_u16(reinterpret_cast<const uint16_t*>(payload + k * kPair));
      run.v[2 * k] = decode_nibbles<0>(four, factor);
      run.v[2 * k + 1] = decode_nibbles<8>(four, factor);
      run.v[kPairs + 2 * k] = decode_nibbles<4>(four, factor);
      run.v[kPairs + 2 * k + 1] = decode_nibbles<12>(four, factor);
    }
  }
  return run;
}

// --- Sums

// The terms of a sum of encoded arrays, at the first element of a range.
struct QuantTerms {
  const ConstEncoded* in;
  size_t count;
  float scale;
  QuantFormat format;
};

template <uint32_t kBits, bool kHadamard>
HWY_INLINE Run decoded_term(const QuantTerms& t, size_t k, size_t run_index, size_t block) {
  const float factor = t.in[k].steps[block];
  const auto* payload = reinterpret_cast<const uint8_t*>(t.in[k].payload);
  Run run = decode_run<kBits>(payload + run_index * (kQuantRun / 8 * kBits),
                              factor_vector<kBits>(factor));
  if constexpr (kHadamard) butterflies(run);
  return run;
}

// Elements run_index * 64 and on, in the order of operations of reduce.h. The sum starts with
// start[0..63], where that is not null.
template <uint32_t kBits, bool kHadamard>
HWY_INLINE Run sum_run(const QuantTerms& t, size_t run_index, const float* start) {
  const F32Tag d;
  const size_t block = run_index * kQuantRun / t.format.block;
  Run sum;
  size_t k = 0;
  if (start != nullptr) {
    sum = load_run<F32>(start);
  } else if (t.count != 0) {
    sum = decoded_term<kBits, kHadamard>(t, k++, run_index, block);
  } else {
    sum = zero_run();
  }
  for (; k < t.count; ++k) {
    const Run term = decoded_term<kBits, kHadamard>(t, k, run_index, block);
    MERON_UNROLL
    for (size_t i = 0; i < kRunVectors; ++i) sum.v[i] = hn::Add(sum.v[i], term.v[i]);
  }
  const F32Vec scale = hn::Set(d, t.scale);
  MERON_UNROLL
  for (size_t i = 0; i < kRunVectors; ++i) sum.v[i] = hn::Mul(sum.v[i], scale);
  return sum;
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MERON_QUANT_VECTORS

#endif  // per-target guard
