// SPDX-License-Identifier: Apache-2.0
// Encoding: see quant.h. A block is read once, into the first-level cache; its largest magnitude is
// known only then.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/quant_reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/quant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

#if MERON_QUANT_VECTORS

using Kind = BlockScale::Kind;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- Blocks that are encoded as they are read

template <class In>
HWY_INLINE uint32_t largest_magnitude(const typename In::Lane* from, size_t n) {
  using Lane = hwy::MakeSigned<typename In::Lane>;
  const hn::Repartition<Lane, F32Tag> d;
  constexpr size_t kStep = kLanes * 4 / sizeof(Lane);
  const auto mask = hn::Set(d, static_cast<Lane>(sizeof(Lane) == 2 ? 0x7fff : 0x7fffffff));
  const auto* bits = reinterpret_cast<const Lane*>(from);
  auto largest0 = hn::Zero(d), largest1 = hn::Zero(d);
  for (size_t i = 0; i < n; i += 2 * kStep) {
    largest0 = hn::Max(largest0, hn::And(hn::LoadU(d, bits + i), mask));
    largest1 = hn::Max(largest1, hn::And(hn::LoadU(d, bits + i + kStep), mask));
  }
  // Of 16-bit lanes, each half of a 32-bit lane is moved to the upper half.
  const I32Tag di;
  I32Vec all = hn::BitCast(di, hn::Max(largest0, largest1));
  if constexpr (sizeof(Lane) == 2) {
    all = hn::Max(hn::ShiftLeft<16>(all), hn::And(all, hn::Set(di, 0x7fff0000)));
  }
  const auto largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, all)));
  if constexpr (!hwy::IsSame<In, F16>()) return largest;
  return std::bit_cast<uint32_t>(f32_from_f16(static_cast<uint16_t>(largest >> 16)));
}

// Blocks are taken in batches that stay in the first-level cache: a block's scale is known late
// after its last element was read, and a CPU does not look far enough ahead to fill that time with
// the block after.
template <class In, uint32_t kBits, bool kError>
HWY_NOINLINE void encode_plain(const Encoding& e, Encoded out, const typename In::Lane* in,
                               size_t blocks) {
  constexpr size_t kBatch = kQuantMaxBlock / kQuantRun;
  const size_t block = e.format.block, bytes = encoded_block_bytes(e.format);
  const size_t batch = kQuantMaxBlock / block;
  auto* payload = reinterpret_cast<uint8_t*>(out.payload);
  for (size_t first = 0; first < blocks; first += batch) {
    const size_t count = std::min(batch, blocks - first);
    uint32_t magnitudes[kBatch];
    for (size_t b = 0; b < count; ++b) {
      magnitudes[b] = largest_magnitude<In>(in + (first + b) * block, block);
    }
    for (size_t b = first; b < first + count; ++b) {
      const BlockScale scale(magnitudes[b - first], e.format);
      out.steps[b] = scale.step;
      if (HWY_LIKELY(scale.kind == Kind::ordinary)) {
        const size_t after = b + batch < blocks ? b + batch : b;
        encode_nearest<kBits, kError>(e, InOrder<In>{in + b * block, in + after * block},
                                      scale.inverse, payload + b * bytes);
        continue;
      }
      std::memset(payload + b * bytes, 0, bytes);
      if (kError && scale.kind == Kind::nonfinite) e.error->add_block(kInfinity, 0);
    }
  }
}

// --- Blocks that are prepared in a buffer first

// v and t of quant.h, held in pairs; t is v without a transform.
struct Buffer {
  alignas(64) float v[kQuantMaxBlock];
  alignas(64) float transformed[kQuantMaxBlock];
};

// Collects a block's runs, and their largest magnitude.
class Prepared {
 public:
  HWY_INLINE Prepared(Buffer& buffer, QuantFormat format)
      : buffer_(buffer), hadamard_(format.hadamard) {}

  HWY_INLINE void add(size_t r, Run run, I32Vec& largest) const {
    store_held(run, buffer_.v + r * kQuantRun);
    if (hadamard_) {
      transform(run);
      store_held(run, buffer_.transformed + r * kQuantRun);
    }
    MERON_UNROLL
    for (size_t i = 0; i < kRunVectors; ++i) {
      const I32Vec bits = hn::BitCast(I32Tag(), run.v[i]);
      largest = hn::Max(largest, hn::And(bits, hn::Set(I32Tag(), 0x7fffffff)));
    }
  }
  const float* v() const { return buffer_.v; }
  const float* t() const { return hadamard_ ? buffer_.transformed : buffer_.v; }

 private:
  Buffer& buffer_;
  bool hadamard_;
};

// The encoding error, by decoding: if it is needed per element, or rounding was random.
template <uint32_t kBits>
HWY_NOINLINE void look_back(const Encoding& e, const BlockScale& scale, const float* v,
                            const uint8_t* payload, float* residual) {
  const F32Tag d;
  const F32Vec beta = hn::Set(d, e.beta), rest = hn::Set(d, 1.0f - e.beta);
  const F32Vec unit = hn::Set(d, scale.inverse);
  const F32Vec factor = factor_vector<kBits>(scale.step);
  Lost squares;
  for (size_t r = 0; r < e.format.block / kQuantRun; ++r) {
    const Run value = load_held(v + r * kQuantRun);
    Run lost = decode_run<kBits>(payload + r * (kQuantRun / 8 * kBits), factor);
    if (e.format.hadamard) butterflies(lost);
    MERON_UNROLL
    for (size_t i = 0; i < kRunVectors; ++i) lost.v[i] = hn::Sub(value.v[i], lost.v[i]);
    if (e.error != nullptr) {
      MERON_UNROLL
      for (size_t i = 0; i < kRunVectors; ++i) {
        squares.add(hn::Mul(lost.v[i], unit), hn::Mul(value.v[i], unit));
      }
    }
    if (residual == nullptr) continue;
    const Run before = load_run<F32>(residual + r * kQuantRun);
    MERON_UNROLL
    for (size_t k = 0; k < kPairs; ++k) {
      const size_t i = 2 * k;
      const F32Vec even = hn::Add(hn::Mul(beta, before.v[i]), hn::Mul(rest, lost.v[i]));
      const F32Vec odd = hn::Add(hn::Mul(beta, before.v[i + 1]), hn::Mul(rest, lost.v[i + 1]));
      put_pair<F32, false>(even, odd, residual + r * kQuantRun + k * kPair);
    }
  }
  if (e.error != nullptr && scale.kind == Kind::ordinary) {
    squares.report(*e.error, 1.0 / static_cast<double>(scale.inverse));
  }
}

template <uint32_t kBits>
void encode_prepared(const Encoding& e, const Prepared& block, I32Vec largest, uint64_t number,
                     uint8_t* payload, float* step, float* residual) {
  const int32_t magnitude = hn::GetLane(hn::MaxOfLanes(I32Tag(), largest));
  const BlockScale scale(static_cast<uint32_t>(magnitude), e.format);
  *step = scale.step;
  const bool ordinary = scale.kind == Kind::ordinary;
  const bool look = residual != nullptr || (e.error != nullptr && ordinary && e.format.stochastic);
  if (!ordinary) {
    std::memset(payload, 0, encoded_block_bytes(e.format));
  } else if (e.format.stochastic) {
    encode_at_random<kBits>(e, block.t(), scale.inverse, number, payload);
  } else if (e.error != nullptr && !look) {
    encode_nearest<kBits, true>(e, Held{block.t()}, scale.inverse, payload);
  } else {
    encode_nearest<kBits, false>(e, Held{block.t()}, scale.inverse, payload);
  }
  if (scale.kind == Kind::nonfinite) {
    if (residual != nullptr) std::fill_n(residual, e.format.block, 0.0f);
    if (e.error != nullptr) e.error->add_block(kInfinity, 0);
  } else if (look) {
    look_back<kBits>(e, scale, block.v(), payload, residual);
  }
}

template <class In>
struct Arrays {
  using Lane = typename In::Lane;
  const Lane* in;
  const Lane* minus;
  float* residual;

  HWY_INLINE Run run(size_t i) const {
    Run run = load_run<In>(in + i);
    if (minus != nullptr) {
      const Run other = load_run<In>(minus + i);
      MERON_UNROLL
      for (size_t j = 0; j < kRunVectors; ++j) run.v[j] = hn::Sub(run.v[j], other.v[j]);
    }
    if (residual != nullptr) {
      const Run other = load_run<F32>(residual + i);
      MERON_UNROLL
      for (size_t j = 0; j < kRunVectors; ++j) run.v[j] = hn::Add(run.v[j], other.v[j]);
    }
    return run;
  }
};

template <class In, uint32_t kBits>
HWY_NOINLINE void encode_blocks(const Encoding& e, Encoded out, const Arrays<In>& arrays,
                                size_t blocks, uint64_t number) {
  Buffer buffer;
  const Prepared prepared(buffer, e.format);
  const size_t block = e.format.block;
  for (size_t b = 0; b < blocks; ++b) {
    I32Vec largest = hn::Zero(I32Tag());
    for (size_t i = 0; i < block; i += kQuantRun) {
      prepared.add(i / kQuantRun, arrays.run(b * block + i), largest);
    }
    auto* payload = reinterpret_cast<uint8_t*>(out.payload) + b * encoded_block_bytes(e.format);
    encode_prepared<kBits>(e, prepared, largest, number + b * block, payload, out.steps + b,
                           arrays.residual != nullptr ? arrays.residual + b * block : nullptr);
  }
}

// The last n elements, fewer than a block.
template <class In, uint32_t kBits>
HWY_NOINLINE void encode_tail(const Encoding& e, Encoded out, const Arrays<In>& arrays, size_t n,
                              uint64_t number) {
  using Lane = typename In::Lane;
  alignas(64) Lane in[kQuantMaxBlock], minus[kQuantMaxBlock];
  alignas(64) float residual[kQuantMaxBlock];
  const auto pad = [&](auto* to, const auto* from) {
    std::copy_n(from, n, to);
    std::fill(to + n, to + e.format.block, std::remove_reference_t<decltype(*to)>{});
  };
  Arrays<In> padded{in, nullptr, nullptr};
  pad(in, arrays.in);
  if (arrays.minus != nullptr) pad(minus, arrays.minus), padded.minus = minus;
  if (arrays.residual != nullptr) pad(residual, arrays.residual), padded.residual = residual;
  encode_blocks<In, kBits>(e, out, padded, 1, number);
  if (arrays.residual != nullptr) std::copy_n(residual, n, arrays.residual);
}

template <class In, uint32_t kBits>
void encode_as(const Encoding& e, Encoded out, const Arrays<In>& arrays, size_t n,
               uint64_t number) {
  const size_t blocks = n / e.format.block, whole = blocks * e.format.block;
  if (arrays.minus != nullptr || arrays.residual != nullptr || e.format.hadamard ||
      e.format.stochastic) {
    encode_blocks<In, kBits>(e, out, arrays, blocks, number);
  } else if (e.error != nullptr) {
    encode_plain<In, kBits, true>(e, out, arrays.in, blocks);
  } else {
    encode_plain<In, kBits, false>(e, out, arrays.in, blocks);
  }
  if (whole < n) {
    const Encoded last{out.payload + blocks * encoded_block_bytes(e.format), out.steps + blocks};
    const Arrays<In> rest{arrays.in + whole,
                          arrays.minus != nullptr ? arrays.minus + whole : nullptr,
                          arrays.residual != nullptr ? arrays.residual + whole : nullptr};
    encode_tail<In, kBits>(e, last, rest, n - whole, number + whole);
  }
  if (e.stream) hwy::FlushStream();
}

template <class In>
void encode_type(const Encoding& e, Encoded out, const void* in, const void* minus, float* residual,
                 size_t n, uint64_t number) {
  using Lane = typename In::Lane;
  const Arrays<In> arrays{static_cast<const Lane*>(in), static_cast<const Lane*>(minus), residual};
  if (e.format.bits == 8) return encode_as<In, 8>(e, out, arrays, n, number);
  return encode_as<In, 4>(e, out, arrays, n, number);
}

// If the call reads the output again, the output should stay in a cache.
bool stream_payload(Encoded out, size_t n, QuantFormat format, bool looks_back) {
  return !looks_back &&
         worth_streaming(out.payload, encoded_blocks(n, format) * encoded_block_bytes(format));
}

void quantize_target(Encoded out, const void* in, Type type, size_t n, QuantFormat format,
                     uint64_t seed, uint64_t first_element, const void* minus, float* residual,
                     float beta, QuantError* error) {
  const Encoding e{format, seed, beta, error,
                   stream_payload(out, n, format,
                                  residual != nullptr || (error != nullptr && format.stochastic))};
  switch (type) {
    case Type::f32:
      return encode_type<F32>(e, out, in, minus, residual, n, first_element);
    case Type::bf16:
      return encode_type<Bf16>(e, out, in, minus, residual, n, first_element);
    case Type::f16:
      return encode_type<F16>(e, out, in, minus, residual, n, first_element);
  }
}

// --- Sums

// Sets the elements of a run after the first n to zero.
HWY_INLINE Run cut(const Run& run, size_t n) {
  alignas(64) float values[kQuantRun];
  MERON_UNROLL
  for (size_t k = 0; k < kPairs; ++k) {
    put_pair<F32, false>(run.v[2 * k], run.v[2 * k + 1], values + k * kPair);
  }
  std::fill(values + n, values + kQuantRun, 0.0f);
  return load_run<F32>(values);
}

template <uint32_t kInBits, bool kInHadamard, uint32_t kBits>
HWY_NOINLINE void encode_sum(const Encoding& e, Encoded out, const QuantTerms& terms, size_t n,
                             uint64_t number) {
  Buffer buffer;
  const Prepared prepared(buffer, e.format);
  for (size_t b = 0, begin = 0; begin < n; ++b, begin += e.format.block) {
    I32Vec largest = hn::Zero(I32Tag());
    for (size_t i = 0; i < e.format.block; i += kQuantRun) {
      const size_t at = begin + i;
      if (at + kQuantRun <= n) {
        prepared.add(i / kQuantRun, sum_run<kInBits, kInHadamard>(terms, at / kQuantRun, nullptr),
                     largest);
      } else if (at < n) {
        const Run sum = sum_run<kInBits, kInHadamard>(terms, at / kQuantRun, nullptr);
        prepared.add(i / kQuantRun, cut(sum, n - at), largest);
      } else {
        prepared.add(i / kQuantRun, zero_run(), largest);
      }
    }
    auto* payload = reinterpret_cast<uint8_t*>(out.payload) + b * encoded_block_bytes(e.format);
    encode_prepared<kBits>(e, prepared, largest, number + begin, payload, out.steps + b, nullptr);
  }
  if (e.stream) hwy::FlushStream();
}

template <uint32_t kBits>
void encode_sum_of(const Encoding& e, Encoded out, const QuantTerms& terms, size_t n,
                   uint64_t number) {
  if (terms.format.bits == 8) {
    if (terms.format.hadamard) return encode_sum<8, true, kBits>(e, out, terms, n, number);
    return encode_sum<8, false, kBits>(e, out, terms, n, number);
  }
  if (terms.format.hadamard) return encode_sum<4, true, kBits>(e, out, terms, n, number);
  return encode_sum<4, false, kBits>(e, out, terms, n, number);
}

void encode_sum_target(Encoded out, const ConstEncoded* in, size_t count, float scale, size_t n,
                       QuantFormat in_format, QuantFormat out_format, uint64_t seed,
                       uint64_t first_element, QuantError* error) {
  const Encoding e{out_format, seed, 0, error,
                   stream_payload(out, n, out_format, error != nullptr && out_format.stochastic)};
  const QuantTerms terms{in, count, scale, in_format};
  if (out_format.bits == 8) return encode_sum_of<8>(e, out, terms, n, first_element);
  return encode_sum_of<4>(e, out, terms, n, first_element);
}

#else

void quantize_target(Encoded out, const void* in, Type type, size_t n, QuantFormat format,
                     uint64_t seed, uint64_t first_element, const void* minus, float* residual,
                     float beta, QuantError* error) {
  quantize_reference(out, in, type, n, format, seed, first_element, minus, residual, beta, error);
}

void encode_sum_target(Encoded out, const ConstEncoded* in, size_t count, float scale, size_t n,
                       QuantFormat in_format, QuantFormat out_format, uint64_t seed,
                       uint64_t first_element, QuantError* error) {
  dequantize_sum_quantize_reference(out, in, count, scale, n, in_format, out_format, seed,
                                    first_element, error);
}

#endif  // MERON_QUANT_VECTORS

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meron::kernels {

HWY_EXPORT(quantize_target);
HWY_EXPORT(encode_sum_target);

void quantize(Encoded out, const void* in, Type type, size_t n, QuantFormat format, uint64_t seed,
              uint64_t first_element, const void* minus, float* residual, float beta,
              QuantError* error) {
  HWY_DYNAMIC_DISPATCH(quantize_target)
  (out, in, type, n, format, seed, first_element, minus, residual, beta, error);
}

void dequantize_sum_quantize(Encoded out, const ConstEncoded* in, size_t count, float scale,
                             size_t n, QuantFormat in_format, QuantFormat out_format, uint64_t seed,
                             uint64_t first_element, QuantError* error) {
  HWY_DYNAMIC_DISPATCH(encode_sum_target)
  (out, in, count, scale, n, in_format, out_format, seed, first_element, error);
}

}  // namespace meron::kernels
#endif
