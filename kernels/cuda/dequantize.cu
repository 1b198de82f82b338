// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/codes.cuh"

namespace meron::cuda {
namespace {

struct Dequantization {
  void* out;
  bool add;
  const std::byte* payload;
  const float* steps;
  uint64_t n;
  Layout layout;
};

inline constexpr unsigned kTilesAtOnce = 2;

// kSimple: neither a transform nor an addition. kType: of `out`.
template <uint32_t kBits, Type kType, bool kSimple, bool kWhole>
MERON_DEVICE void dequantize_tiles(const Dequantization& d, uint64_t begin, unsigned lane) {
  const bool add = !kSimple && d.add;
  Codes codes[kTilesAtOnce];
  float steps[kTilesAtOnce];
  RawQuad before[kTilesAtOnce][2];
#pragma unroll
  for (unsigned i = 0; i < kTilesAtOnce; ++i) {
    const uint64_t tile = begin + i * kTile;
    codes[i] = load_codes<kBits, kWhole>(d.payload, tile, d.layout.padded, lane);
    steps[i] = load_step<kWhole>(d.steps, tile + quad_of(lane), d.layout);
  }
  if (add) {
#pragma unroll
    for (unsigned i = 0; i < kTilesAtOnce; ++i) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const uint64_t at = begin + i * kTile + quad_of(lane) + h * 32;
        before[i][h] = load_raw<kWhole>(d.out, kType, at, d.n);
      }
    }
  }
#pragma unroll
  for (unsigned i = 0; i < kTilesAtOnce; ++i) {
    Share share = kSimple ? decode<kBits>(codes[i], steps[i])
                          : decode<kBits>(codes[i], steps[i], d.layout.format, lane);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      Quad& value = share.half[h];
      if (add) {
        const Quad old = widen(before[i][h], kType);
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) value.v[c] = old.v[c] + value.v[c];
      }
      const uint64_t at = begin + i * kTile + quad_of(lane) + h * 32;
      store_raw<kWhole>(d.out, kType, at, d.n, narrow(value, kType));
    }
  }
}

template <uint32_t kBits, Type kType, bool kSimple>
MERON_KERNEL dequantize_kernel(MERON_PARAMETER Dequantization d) {
  constexpr unsigned kEach = kTilesAtOnce * kTile;
  const unsigned lane = lane_index();
  const bool all_aligned = aligned(d.out, kType) && aligned(d.payload, 4);
  const uint64_t stride = uint64_t{block_count()} * kWarps * kEach;
  uint64_t begin = (uint64_t{block_index()} * kWarps + warp_index()) * kEach;
  for (; begin < d.n; begin += stride) {
    if (all_aligned && begin + kEach <= d.n) {
      dequantize_tiles<kBits, kType, kSimple, true>(d, begin, lane);
    } else {
      dequantize_tiles<kBits, kType, kSimple, false>(d, begin, lane);
    }
  }
}

template <Type kType>
cudaError_t launch_dequantize(const Dequantization& d, uint64_t blocks, cudaStream_t stream) {
  const bool simple = !d.add && !d.layout.format.hadamard;
  if (d.layout.format.bits == 8) {
    return simple ? launch<dequantize_kernel<8, kType, true>>(blocks, stream, d)
                  : launch<dequantize_kernel<8, kType, false>>(blocks, stream, d);
  }
  return simple ? launch<dequantize_kernel<4, kType, true>>(blocks, stream, d)
                : launch<dequantize_kernel<4, kType, false>>(blocks, stream, d);
}

}  // namespace

cudaError_t dequantize(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                       bool add, cudaStream_t stream) {
  const Dequantization d{out, add, in.payload, in.steps, n, Layout(format, n)};
  constexpr uint64_t kEach = uint64_t{kWarps} * kTilesAtOnce * kTile;
  const uint64_t blocks = (n + kEach - 1) / kEach;
  switch (type) {
    case Type::f32:
      return launch_dequantize<Type::f32>(d, blocks, stream);
    case Type::bf16:
      return launch_dequantize<Type::bf16>(d, blocks, stream);
    case Type::f16:
      return launch_dequantize<Type::f16>(d, blocks, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace meron::cuda
