// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/squares.cuh"

namespace meron::cuda {
namespace {

struct Sum {
  float* out;  // null: only squares are wanted, of the first input
  SquaresPieces* squares;
  uint64_t n;
  uint32_t count;
  float scale;
  bool accumulate;
  const void* in[kReduceInputs];
};

// Tiles that a warp sums at once: as many bytes are on their way for each type.
template <Type kType>
inline constexpr unsigned kTilesAtOnce = kType == Type::f32 ? 1 : 2;

inline constexpr unsigned kInputsAtOnce = 4;

template <unsigned kTiles>
struct Shares {
  Share tile[kTiles];
};

// Tiles from element `begin` on. Inputs are read kInputsAtOnce at a time, and added one by one.
template <Type kType, bool kWhole>
MERON_DEVICE Shares<kTilesAtOnce<kType>> sum_tiles(const Sum& sum, uint64_t begin, unsigned lane) {
  constexpr unsigned kTiles = kTilesAtOnce<kType>, kQuads = 2 * kTiles;
  const uint64_t at = begin + quad_of(lane), n = sum.n;
  const auto quad_at = [at](unsigned j) { return at + j / 2 * kTile + j % 2 * 32; };
  Quad total[kQuads] = {};
  uint32_t k = 0;
  if (sum.accumulate) {
#pragma unroll
    for (unsigned j = 0; j < kQuads; ++j) {
      total[j] = widen(load_raw<kWhole>(sum.out, Type::f32, quad_at(j), n), Type::f32);
    }
  }
  const auto add = [&](auto inputs) {
    RawQuad raw[inputs()][kQuads];
#pragma unroll
    for (unsigned i = 0; i < inputs(); ++i) {
#pragma unroll
      for (unsigned j = 0; j < kQuads; ++j) {
        raw[i][j] = load_raw<kWhole>(sum.in[k + i], kType, quad_at(j), n);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < inputs(); ++i) {
#pragma unroll
      for (unsigned j = 0; j < kQuads; ++j) {
        const Quad term = widen(raw[i][j], kType);
        if (i == 0 && k == 0 && !sum.accumulate) {
          total[j] = term;
          continue;
        }
#pragma unroll
        for (unsigned c = 0; c < 4; ++c) total[j].v[c] = total[j].v[c] + term.v[c];
      }
    }
    k += inputs();
  };
  if constexpr (kWhole) {
#pragma unroll 1
    while (k + kInputsAtOnce <= sum.count) {
      add(std::integral_constant<unsigned, kInputsAtOnce>());
    }
    if (k + 2 <= sum.count) add(std::integral_constant<unsigned, 2>());
  }
#pragma unroll 1
  while (k < sum.count) add(std::integral_constant<unsigned, 1>());

  Shares<kTiles> shares;
#pragma unroll
  for (unsigned j = 0; j < kQuads; ++j) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) total[j].v[c] = total[j].v[c] * sum.scale;
    if (sum.out != nullptr) {
      store_raw<kWhole>(sum.out, Type::f32, quad_at(j), n, narrow(total[j], Type::f32));
    }
    // Elements past the end do not count in squares, for any scale.
    if constexpr (!kWhole) {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) {
        if (quad_at(j) + c >= n) total[j].v[c] = 0.0f;
      }
    }
    shares.tile[j / 2].half[j % 2] = total[j];
  }
  return shares;
}

template <Type kType>
MERON_KERNEL reduce_kernel(MERON_PARAMETER Sum sum) {
  constexpr unsigned kTiles = kTilesAtOnce<kType>;
  MERON_SHARED BlockSquares squares;
  const unsigned lane = lane_index();
  if (sum.squares != nullptr) squares.begin();
  bool all_aligned = aligned(sum.out, Type::f32);
  for (uint32_t k = 0; k < sum.count; ++k) all_aligned &= aligned(sum.in[k], kType);
  const uint64_t stride = uint64_t{block_count()} * kWarps * kTiles * kTile;
  uint64_t begin = (uint64_t{block_index()} * kWarps + warp_index()) * kTiles * kTile;
  for (; begin < sum.n; begin += stride) {
    const Shares<kTiles> shares = all_aligned && begin + kTiles * kTile <= sum.n
                                      ? sum_tiles<kType, true>(sum, begin, lane)
                                      : sum_tiles<kType, false>(sum, begin, lane);
    if (sum.squares == nullptr) continue;
#pragma unroll
    for (unsigned t = 0; t < kTiles; ++t) {
      const double value = sum_of_squares(shares.tile[t], lane);
      if (lane == 0) squares.add(value);
    }
  }
  if (sum.squares != nullptr) squares.end(sum.squares);
}

template <Type kType>
cudaError_t launch_reduce(const Sum& sum, cudaStream_t stream) {
  constexpr uint64_t kEach = uint64_t{kWarps} * kTilesAtOnce<kType> * kTile;
  return launch<reduce_kernel<kType>>((sum.n + kEach - 1) / kEach, stream, sum);
}

cudaError_t launch_reduce(const Sum& sum, Type type, cudaStream_t stream) {
  switch (type) {
    case Type::f32:
      return launch_reduce<Type::f32>(sum, stream);
    case Type::bf16:
      return launch_reduce<Type::bf16>(sum, stream);
    case Type::f16:
      return launch_reduce<Type::f16>(sum, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t reduce(float* out, bool accumulate, const void* const* in, size_t count, Type type,
                   float scale, size_t n, SquaresPieces* squares, cudaStream_t stream) {
  size_t done = 0;
  do {
    const size_t some = std::min(count - done, kReduceInputs);
    const bool last = done + some == count;
    Sum sum{out, nullptr, n, static_cast<uint32_t>(some), 1.0f, accumulate || done != 0, {}};
    if (last) {
      sum.squares = squares;
      sum.scale = scale;
    }
    std::copy_n(in + done, some, sum.in);
    if (const cudaError_t error = launch_reduce(sum, type, stream); error != cudaSuccess) {
      return error;
    }
    done += some;
  } while (done < count);
  return cudaSuccess;
}

cudaError_t squares(const void* array, Type type, size_t n, SquaresPieces* to,
                    cudaStream_t stream) {
  return launch_reduce({nullptr, to, n, 1, 1.0f, false, {array}}, type, stream);
}

}  // namespace meron::cuda
