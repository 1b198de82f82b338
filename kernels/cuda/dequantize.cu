// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/codes.cuh"

namespace meron::cuda {
namespace {

struct Dequantization {
  void* out;
  Type type;
  bool add;
  const std::byte* payload;
  const float* steps;
  uint64_t n;
  Layout layout;
};

inline constexpr unsigned kTilesAtOnce = 2;

template <uint32_t kBits, bool kWhole>
MERON_DEVICE void dequantize_tiles(const Dequantization& d, uint64_t begin, unsigned lane) {
  Codes codes[kTilesAtOnce];
  float steps[kTilesAtOnce];
  RawQuad before[kTilesAtOnce][2];
#pragma unroll
  for (unsigned i = 0; i < kTilesAtOnce; ++i) {
    const uint64_t tile = begin + i * kTile;
    codes[i] = load_codes<kBits, kWhole>(d.payload, tile, d.layout.padded, lane);
    steps[i] = load_step<kWhole>(d.steps, tile + quad_of(lane), d.layout);
  }
  if (d.add) {
#pragma unroll
    for (unsigned i = 0; i < kTilesAtOnce; ++i) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const uint64_t at = begin + i * kTile + quad_of(lane) + h * 32;
        before[i][h] = load_raw<kWhole>(d.out, d.type, at, d.n);
      }
    }
  }
#pragma unroll
  for (unsigned i = 0; i < kTilesAtOnce; ++i) {
    Share share = decode<kBits>(codes[i], steps[i], d.layout.format, lane);
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      Quad& value = share.half[h];
      if (d.add) {
        const Quad old = widen(before[i][h], d.type);
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) value.v[c] = old.v[c] + value.v[c];
      }
      const uint64_t at = begin + i * kTile + quad_of(lane) + h * 32;
      store_raw<kWhole>(d.out, d.type, at, d.n, narrow(value, d.type));
    }
  }
}

template <uint32_t kBits>
MERON_KERNEL dequantize_kernel(MERON_PARAMETER Dequantization d) {
  constexpr unsigned kEach = kTilesAtOnce * kTile;
  const unsigned lane = lane_index();
  const bool all_aligned = aligned(d.out, d.type) && aligned(d.payload, 4);
  const uint64_t stride = uint64_t{block_count()} * kWarps * kEach;
  uint64_t begin = (uint64_t{block_index()} * kWarps + warp_index()) * kEach;
  for (; begin < d.n; begin += stride) {
    if (all_aligned && begin + kEach <= d.n) {
      dequantize_tiles<kBits, true>(d, begin, lane);
    } else {
      dequantize_tiles<kBits, false>(d, begin, lane);
    }
  }
}

}  // namespace

cudaError_t dequantize(void* out, Type type, ConstEncoded in, size_t n, QuantFormat format,
                       bool add, cudaStream_t stream) {
  const Dequantization d{out, type, add, in.payload, in.steps, n, Layout(format, n)};
  constexpr uint64_t kEach = uint64_t{kWarps} * kTilesAtOnce * kTile;
  const uint64_t blocks = (n + kEach - 1) / kEach;
  return format.bits == 8 ? launch<dequantize_kernel<8>>(blocks, stream, d)
                          : launch<dequantize_kernel<4>>(blocks, stream, d);
}

}  // namespace meron::cuda
