// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/encode.cuh"

namespace meron::cuda {
namespace {

struct Quantization {
  Target to;
  const void* in;
  uint64_t n;
  const void* minus;  // or null, as the next
  float* residual;
  float beta;
};

// Without what few callers want a warp encodes two tiles at once, so that more is on its way.
template <bool kPlain>
inline constexpr unsigned kTilesAtOnce = kPlain ? 2 : 1;

template <bool kWhole, unsigned kTiles>
MERON_DEVICE void load_tiles(const void* array, Type type, uint64_t begin, uint64_t n,
                             unsigned lane, Share (&v)[kTiles]) {
  RawQuad raw[kTiles][2];
#pragma unroll
  for (unsigned i = 0; i < kTiles; ++i) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      raw[i][h] = load_raw<kWhole>(array, type, begin + i * kTile + quad_of(lane) + h * 32, n);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < kTiles; ++i) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) v[i].half[h] = widen(raw[i][h], type);
  }
}

template <Type kType, bool kWhole>
MERON_DEVICE void add_corrections(const Quantization& q, uint64_t begin, unsigned lane, Share& v,
                                  Share& residual) {
  if (q.minus != nullptr) {
    Share minus[1];
    load_tiles<kWhole>(q.minus, kType, begin, q.n, lane, minus);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) v.half[h].v[c] = v.half[h].v[c] - minus[0].half[h].v[c];
    }
  }
  if (q.residual != nullptr) {
    Share before[1];
    load_tiles<kWhole>(q.residual, Type::f32, begin, q.n, lane, before);
    residual = before[0];
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) v.half[h].v[c] = v.half[h].v[c] + residual.half[h].v[c];
    }
  }
}

template <bool kWhole>
MERON_DEVICE void keep_lost(const Quantization& q, uint64_t begin, unsigned lane, const Share& v,
                            const Share& decoded, const Share& residual, bool finite) {
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    Quad next;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      const float lost = v.half[h].v[c] - decoded.half[h].v[c];
      const float kept = q.beta * residual.half[h].v[c] + (1.0f - q.beta) * lost;
      next.v[c] = finite ? kept : 0.0f;
    }
    store_raw<kWhole>(q.residual, Type::f32, begin + quad_of(lane) + h * 32, q.n,
                      narrow(next, Type::f32));
  }
}

template <Type kType, bool kPlain>
MERON_KERNEL quantize_kernel(MERON_PARAMETER Quantization q) {
  constexpr unsigned kTiles = kTilesAtOnce<kPlain>, kEach = kTiles * kTile;
  MERON_SHARED EncodeShared shared;
  Encoder encoder(q.to, shared);
  const unsigned lane = lane_index();
  const bool all_aligned = aligned(q.in, kType) && aligned(q.to.payload, 4) &&
                           (kPlain || (aligned(q.minus, kType) && aligned(q.residual, Type::f32)));
  const uint64_t stride = uint64_t{block_count()} * kWarps * kEach;
  // All warps continue as long as one has work: they may have to synchronize.
  for (uint64_t base = uint64_t{block_index()} * kWarps * kEach; base < q.n; base += stride) {
    const uint64_t begin = base + warp_index() * kEach;
    const bool whole = all_aligned && begin + kEach <= q.n;
    Share v[kTiles], residual = {};
    if (whole) {
      load_tiles<true>(q.in, kType, begin, q.n, lane, v);
      if constexpr (!kPlain) add_corrections<kType, true>(q, begin, lane, v[0], residual);
    } else {
      load_tiles<false>(q.in, kType, begin, q.n, lane, v);
      if constexpr (!kPlain) add_corrections<kType, false>(q, begin, lane, v[0], residual);
    }
    Share t[kTiles];
#pragma unroll
    for (unsigned i = 0; i < kTiles; ++i) {
      t[i] = v[i];
      if (q.to.layout.format.hadamard) transform(t[i], lane);
    }
    uint32_t largest[kTiles];
    encoder.find_largest(t, largest);
#pragma unroll
    for (unsigned i = 0; i < kTiles; ++i) {
      const BlockScale scale(largest[i], q.to.layout.format);
      const Codes codes = encoder.put(t[i], scale, begin + i * kTile, whole);
      if constexpr (!kPlain) {
        const Share decoded = encoder.decoded(codes, scale);
        const bool finite = scale.kind != BlockScale::Kind::nonfinite;
        if (q.residual != nullptr && whole) {
          keep_lost<true>(q, begin, lane, v[i], decoded, residual, finite);
        } else if (q.residual != nullptr) {
          keep_lost<false>(q, begin, lane, v[i], decoded, residual, finite);
        }
        if (q.to.error != nullptr) encoder.count(v[i], decoded, scale, begin);
      }
    }
  }
  if constexpr (!kPlain) encoder.finish();
}

// The most frequent case, without branches: nearest, no transform, and a block within a tile.
template <Type kType, uint32_t kBits>
MERON_KERNEL quantize_simple_kernel(MERON_PARAMETER Quantization q) {
  constexpr unsigned kTiles = kTilesAtOnce<true>, kEach = kTiles * kTile;
  const QuantFormat format{kBits, q.to.layout.format.block};
  const unsigned lane = lane_index();
  const bool all_aligned = aligned(q.in, kType) && aligned(q.to.payload, 4);
  const uint64_t stride = uint64_t{block_count()} * kWarps * kEach, padded = q.to.layout.padded;
  uint64_t begin = (uint64_t{block_index()} * kWarps + warp_index()) * kEach;
  for (; begin < q.n; begin += stride) {
    const bool whole = all_aligned && begin + kEach <= q.n;
    Share v[kTiles];
    if (whole) {
      load_tiles<true>(q.in, kType, begin, q.n, lane, v);
    } else {
      load_tiles<false>(q.in, kType, begin, q.n, lane, v);
    }
#pragma unroll
    for (unsigned i = 0; i < kTiles; ++i) {
      const uint64_t tile = begin + i * kTile, at = tile + quad_of(lane);
      const BlockScale scale(largest_of_block(largest_of(v[i]), format.block), format);
      if ((at & (format.block - 1)) == 0 && at < padded) {
        q.to.steps[at >> q.to.layout.shift] = scale.step;
      }
      const Codes codes = encode<kBits>(v[i], scale, format, 0, 0);
      if (whole) {
        store_codes<kBits, true>(q.to.payload, tile, padded, codes, lane);
      } else {
        store_codes<kBits, false>(q.to.payload, tile, padded, codes, lane);
      }
    }
  }
}

template <Type kType>
cudaError_t launch_quantize(const Quantization& q, cudaStream_t stream) {
  const auto blocks = [&](uint64_t each) { return (q.n + each - 1) / each; };
  const QuantFormat format = q.to.layout.format;
  if (q.minus == nullptr && q.residual == nullptr && q.to.error == nullptr) {
    if (!format.stochastic && !format.hadamard && format.block <= kTile) {
      const uint64_t some = blocks(kWarps * kTilesAtOnce<true> * kTile);
      return format.bits == 8 ? launch<quantize_simple_kernel<kType, 8>>(some, stream, q)
                              : launch<quantize_simple_kernel<kType, 4>>(some, stream, q);
    }
    return launch<quantize_kernel<kType, true>>(blocks(kWarps * kTilesAtOnce<true> * kTile), stream,
                                                q);
  }
  return launch<quantize_kernel<kType, false>>(blocks(kWarps * kTilesAtOnce<false> * kTile), stream,
                                               q);
}

}  // namespace

cudaError_t quantize(Encoded out, const void* in, Type type, size_t n, QuantFormat format,
                     uint64_t seed, uint64_t first_element, const void* minus, float* residual,
                     float beta, QuantError* error, cudaStream_t stream) {
  const Target to{Layout(format, n), out.payload, out.steps, seed, first_element, error};
  const Quantization q{to, in, n, minus, residual, beta};
  switch (type) {
    case Type::f32:
      return launch_quantize<Type::f32>(q, stream);
    case Type::bf16:
      return launch_quantize<Type::bf16>(q, stream);
    case Type::f16:
      return launch_quantize<Type::f16>(q, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace meron::cuda
