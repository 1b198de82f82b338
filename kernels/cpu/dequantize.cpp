// SPDX-License-Identifier: Apache-2.0
// Decoding, and sums of what is decoded: see quant.h.
#include <algorithm>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/quant_reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dequantize.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/quant-inl.h"
#include "kernels/cpu/squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

#if MERON_QUANT_VECTORS

template <bool kStream, class D>
HWY_INLINE void put_vector(hn::Vec<D> v, D d, hn::TFromD<D>* to) {
  if constexpr (kStream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// --- 4 bits to 16: whatever the format, an element is one of 16, which are looked up by bytes

// Vectors of at most half a run's payload or all of it.
using HalfTag = hn::CappedTag<uint8_t, kQuantRun / 2>;
using HalfVec = hn::Vec<HalfTag>;
using Half16Tag = hn::Repartition<uint16_t, HalfTag>;

// The low and high bytes of the 16 values, each 16 in every block of a vector.
struct ByteTables {
  HalfVec low, high;
};

template <class Out>
HWY_INLINE ByteTables make_tables(float step) {
  // In this order value 2 i is the low byte of what is mixed below, and 2 i + 1 the high one.
  static constexpr int32_t kOrder[] = {0, 2, 4, 6, -8, -6, -4, -2, 1, 3, 5, 7, -7, -5, -3, -1};
  const F32Tag d;
  const Half16Tag d16;
  const HalfTag d8;
  alignas(64) uint16_t values[16];
  MERON_UNROLL
  for (size_t i = 0; i < 16; i += kLanes) {
    const F32Vec q = hn::ConvertTo(d, hn::LoadU(I32Tag(), kOrder + i));
    store<Out>(hn::Mul(q, hn::Set(d, step)), values + i);
  }
  const auto even = hn::LoadDup128(d16, values), odd = hn::LoadDup128(d16, values + 8);
  const auto byte = hn::Set(d16, 0xff);
  return {hn::BitCast(d8, hn::Or(hn::And(even, byte), hn::ShiftLeft<8>(odd))),
          hn::BitCast(d8, hn::Or(hn::ShiftRight<8>(even), hn::AndNot(byte, odd)))};
}

// Looks up each byte of `index` and writes the values in order.
template <bool kStream>
HWY_INLINE void look_up(const ByteTables& tables, HalfVec index, uint16_t* to) {
  const Half16Tag d16;
  const HalfVec low = hn::TableLookupBytes(tables.low, index);
  const HalfVec high = hn::TableLookupBytes(tables.high, index);
  put_vector<kStream>(hn::BitCast(d16, hn::InterleaveLower(HalfTag(), low, high)), d16, to);
  put_vector<kStream>(hn::BitCast(d16, hn::InterleaveUpper(HalfTag(), low, high)), d16,
                      to + hn::MaxLanes(d16));
}

// For InterleaveLower to yield the first half, that must be the lower half of each block.
HWY_INLINE HalfVec order_for_interleave(HalfVec v) {
  if constexpr (hn::MaxLanes(HalfTag()) == 16) return v;
  alignas(32) static constexpr int32_t kOrder[8] = {0, 1, 4, 5, 2, 3, 6, 7};
  const hn::Repartition<uint32_t, HalfTag> d32;
  const auto words = hn::BitCast(d32, v);
  return hn::BitCast(HalfTag(), hn::TableLookupLanes(words, hn::SetTableIndices(d32, kOrder)));
}

template <bool kStream>
HWY_INLINE void decode_by_table(const ByteTables& tables, const uint8_t* payload, size_t runs,
                                uint16_t* out) {
  const HalfTag d;
  const Half16Tag d16;
  const HalfVec mask = hn::Set(d, 0xf);
  for (size_t r = 0; r < runs; ++r, payload += kQuantRun / 2, out += kQuantRun) {
    MERON_UNROLL
    for (size_t i = 0; i < kQuantRun / 2; i += hn::MaxLanes(d)) {
      const HalfVec both = order_for_interleave(hn::LoadU(d, payload + i));
      const HalfVec upper = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, both)));
      look_up<kStream>(tables, hn::And(both, mask), out + i);
      look_up<kStream>(tables, hn::And(upper, mask), out + kQuantRun / 2 + i);
    }
  }
}

// --- Otherwise

// Rounds as Bf16::pack does what is no NaN: the upper 16 bits, and one more where adding 0x7fff,
// and 1 if they are odd, to the lower 16 carries. The average is half that sum: the carry is on
// top.
HWY_INLINE Wide16Vec pack_bf16(F32Vec even, F32Vec odd) {
  const Wide16Tag d;
  const U32Tag du;
  const Wide16Vec upper =
      hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(du, even))));
  const Wide16Vec lower = join_low(hn::BitCast(du, even), hn::BitCast(du, odd));
  const Wide16Vec rest = hn::Or(hn::And(upper, hn::Set(d, 1)), hn::Set(d, 0x7ffe));
  return hn::Add(upper, hn::ShiftRight<15>(hn::AverageRound(lower, rest)));
}

// Blocks with a finite step, no transform and nothing to add to.
template <class Out, uint32_t kBits, bool kStream>
HWY_INLINE void decode_plain(typename Out::Lane* out, const uint8_t* payload, float step,
                             size_t runs) {
  if constexpr (kBits == 4 && sizeof(typename Out::Lane) == 2) {
    return decode_by_table<kStream>(make_tables<Out>(step), payload, runs, out);
  }
  const F32Vec factor = factor_vector<kBits>(step);
  for (size_t r = 0; r < runs; ++r, payload += kQuantRun / 8 * kBits, out += kQuantRun) {
    const Run run = decode_run<kBits>(payload, factor);
    MERON_UNROLL
    for (size_t k = 0; k < kPairs; ++k) {
      const F32Vec even = run.v[2 * k], odd = run.v[2 * k + 1];
      if constexpr (hwy::IsSame<Out, Bf16>()) {
        put_vector<kStream>(pack_bf16(even, odd), Wide16Tag(), out + k * kPair);
      } else {
        put_pair<Out, kStream>(even, odd, out + k * kPair);
      }
    }
  }
}

template <class Out, uint32_t kBits, bool kStream>
HWY_NOINLINE void decode_any(typename Out::Lane* out, const uint8_t* payload, float step,
                             size_t runs, QuantFormat format, bool add) {
  const F32Vec factor = factor_vector<kBits>(step);
  for (size_t r = 0; r < runs; ++r, payload += kQuantRun / 8 * kBits, out += kQuantRun) {
    Run run = decode_run<kBits>(payload, factor);
    if (format.hadamard) butterflies(run);
    MERON_UNROLL
    for (size_t k = 0; k < kPairs; ++k) {
      auto* to = out + k * kPair;
      F32Vec first, second;
      join(run.v[2 * k], run.v[2 * k + 1], first, second);
      if (add) {
        first = hn::Add(Out::load(to), first);
        second = hn::Add(Out::load(to + kLanes), second);
      }
      put<Out, kStream>(first, to);
      put<Out, kStream>(second, to + kLanes);
    }
  }
}

template <class Out, uint32_t kBits, bool kStream>
HWY_NOINLINE void decode_range(typename Out::Lane* out, ConstEncoded in, size_t n,
                               QuantFormat format, bool add) {
  const bool plain = !format.hadamard && !add;
  const auto* payload = reinterpret_cast<const uint8_t*>(in.payload);
  for (size_t b = 0; n != 0; ++b, payload += encoded_block_bytes(format)) {
    const float step = in.steps[b];
    const size_t runs = std::min<size_t>(n, format.block) / kQuantRun;
    if (HWY_LIKELY(plain && is_finite(step))) {
      decode_plain<Out, kBits, kStream>(out, payload, step, runs);
    } else {
      decode_any<Out, kBits, kStream>(out, payload, step, runs, format, add);
    }
    out += runs * kQuantRun;
    n -= runs * kQuantRun;
    if (n != 0 && n < kQuantRun && runs * kQuantRun < format.block) {  // the last elements
      typename Out::Lane rest[kQuantRun] = {};
      if (add) std::copy_n(out, n, rest);
      decode_any<Out, kBits, false>(rest, payload + runs * (kQuantRun / 8 * kBits), step, 1, format,
                                    add);
      std::copy_n(rest, n, out);
      n = 0;
    }
  }
  if constexpr (kStream) hwy::FlushStream();
}

template <class Out>
void decode_to(void* to, ConstEncoded in, size_t n, QuantFormat format, bool add,
               bool handed_over) {
  auto* out = static_cast<typename Out::Lane*>(to);
  const bool stream = (handed_over || !add) && worth_streaming(to, n * sizeof(*out), handed_over);
  if (format.bits == 8) {
    if (stream) return decode_range<Out, 8, true>(out, in, n, format, add);
    return decode_range<Out, 8, false>(out, in, n, format, add);
  }
  if (stream) return decode_range<Out, 4, true>(out, in, n, format, add);
  return decode_range<Out, 4, false>(out, in, n, format, add);
}

void dequantize_target(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                       bool add, bool handed_over) {
  switch (type) {
    case Type::f32:
      return decode_to<F32>(out, in, n, format, add, handed_over);
    case Type::bf16:
      return decode_to<Bf16>(out, in, n, format, add, handed_over);
    case Type::f16:
      return decode_to<F16>(out, in, n, format, add, handed_over);
  }
}

// --- Sums

template <bool kStream>
HWY_INLINE void put_run(const Run& run, float* to) {
  MERON_UNROLL
  for (size_t k = 0; k < kPairs; ++k) {
    put_pair<F32, kStream>(run.v[2 * k], run.v[2 * k + 1], to + k * kPair);
  }
}

// With `squares`, results are also kept in `block`, because `out` should not be read back.
template <uint32_t kBits, bool kHadamard, bool kStream>
HWY_NOINLINE void sum_range(float* out, bool accumulate, const QuantTerms& terms, size_t n,
                            ExactSum* squares) {
  alignas(64) float block[kBlock];
  size_t i = 0;
  for (; i + kQuantRun <= n; i += kQuantRun) {
    const Run sum = sum_run<kBits, kHadamard>(terms, i / kQuantRun, accumulate ? out + i : nullptr);
    put_run<kStream>(sum, out + i);
    if (squares == nullptr) continue;
    put_run<false>(sum, block + i % kBlock);
    if ((i + kQuantRun) % kBlock == 0) squares->add(sum_of_squares(block));
  }
  if (i < n) {
    alignas(64) float rest[kQuantRun] = {};
    if (accumulate) std::copy(out + i, out + n, rest);
    put_run<false>(sum_run<kBits, kHadamard>(terms, i / kQuantRun, accumulate ? rest : nullptr),
                   rest);
    std::copy_n(rest, n - i, out + i);
    std::copy_n(rest, n - i, block + i % kBlock);
  }
  if (squares != nullptr && n % kBlock != 0) {
    std::fill(block + n % kBlock, block + kBlock, 0.0f);
    squares->add(sum_of_squares(block));
  }
  if constexpr (kStream) hwy::FlushStream();
}

template <uint32_t kBits, bool kHadamard>
void sum_bits(float* out, bool accumulate, const QuantTerms& terms, size_t n, ExactSum* squares,
              bool handed_over) {
  if ((handed_over || !accumulate) && worth_streaming(out, n * sizeof(float), handed_over)) {
    return sum_range<kBits, kHadamard, true>(out, accumulate, terms, n, squares);
  }
  return sum_range<kBits, kHadamard, false>(out, accumulate, terms, n, squares);
}

void sum_target(float* out, bool accumulate, const ConstEncoded* in, size_t count, float scale,
                size_t n, QuantFormat format, ExactSum* squares, bool handed_over) {
  const QuantTerms terms{in, count, scale, format};
  if (format.bits == 8) {
    if (format.hadamard) return sum_bits<8, true>(out, accumulate, terms, n, squares, handed_over);
    return sum_bits<8, false>(out, accumulate, terms, n, squares, handed_over);
  }
  if (format.hadamard) return sum_bits<4, true>(out, accumulate, terms, n, squares, handed_over);
  return sum_bits<4, false>(out, accumulate, terms, n, squares, handed_over);
}

#else

void dequantize_target(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                       bool add, bool /*handed_over*/) {
  dequantize_reference(out, type, in, n, format, add);
}

void sum_target(float* out, bool accumulate, const ConstEncoded* in, size_t count, float scale,
                size_t n, QuantFormat format, ExactSum* squares, bool /*handed_over*/) {
  dequantize_sum_reference(out, accumulate, in, count, scale, n, format, squares);
}

#endif  // MERON_QUANT_VECTORS

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(dequantize_target);
HWY_EXPORT(sum_target);

void dequantize(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format, bool add,
                bool handed_over) {
  HWY_DYNAMIC_DISPATCH(dequantize_target)(out, type, in, n, format, add, handed_over);
}

void dequantize_sum(float* out, bool accumulate, const ConstEncoded* in, size_t count, float scale,
                    size_t n, QuantFormat format, ExactSum* squares, bool handed_over) {
  HWY_DYNAMIC_DISPATCH(sum_target)
  (out, accumulate, in, count, scale, n, format, squares, handed_over);
}

}  // namespace meron::kernels
#endif
