// SPDX-License-Identifier: Apache-2.0
// Conversions and additions between the storage types, of many arrays at once.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/tasks.h"
#include "kernels/cuda/tile.cuh"

namespace meron::cuda {
namespace {

// Additions have twice the words to hold.
template <bool kAdd>
inline constexpr unsigned kTilesAtOnce = kAdd ? 2 : 4;

using CastTasks = Tasks<CastTask, kCastTasks>;

template <bool kAdd, bool kWhole>
MERON_DEVICE void cast_tiles(const CastTask& task, uint64_t begin, Type dst, Type src,
                             unsigned lane) {
  constexpr unsigned kQuads = 2 * kTilesAtOnce<kAdd>;
  const uint64_t at = begin + quad_of(lane), n = task.n;
  const auto quad_at = [at](unsigned j) { return at + j / 2 * kTile + j % 2 * 32; };
  RawQuad raw[kQuads], sum[kAdd ? kQuads : 1];
#pragma unroll
  for (unsigned j = 0; j < kQuads; ++j) {
    raw[j] = load_raw<kWhole>(task.src, src, quad_at(j), n);
    if constexpr (kAdd) sum[j] = load_raw<kWhole>(task.dst, dst, quad_at(j), n);
  }
#pragma unroll
  for (unsigned j = 0; j < kQuads; ++j) {
    if constexpr (kAdd) {
      Quad total = widen(sum[j], dst);
      const Quad term = widen(raw[j], src);
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) total.v[c] = total.v[c] + term.v[c];
      raw[j] = narrow(total, dst);
    } else if (dst != src) {
      raw[j] = narrow(widen(raw[j], src), dst);
    }
    store_raw<kWhole>(task.dst, dst, quad_at(j), n, raw[j]);
  }
}

template <bool kAdd>
MERON_KERNEL_RESIDENT(3)
cast_kernel(MERON_PARAMETER CastTasks tasks, Type dst, Type src) {
  constexpr unsigned kEach = kTilesAtOnce<kAdd> * kTile;
  const unsigned lane = lane_index();
  uint32_t t = 0;
  for (uint32_t w = block_index() * kWarps + warp_index(); w < tasks.pieces();
       w += block_count() * kWarps) {
    while (w >= tasks.first_piece[t + 1]) ++t;
    const CastTask& task = tasks.task[t];
    const uint64_t begin = uint64_t{w - tasks.first_piece[t]} * kEach;
    if (begin + kEach <= task.n && aligned(task.dst, dst) && aligned(task.src, src)) {
      cast_tiles<kAdd, true>(task, begin, dst, src, lane);
    } else {
      cast_tiles<kAdd, false>(task, begin, dst, src, lane);
    }
  }
}

template <bool kAdd>
cudaError_t cast(const CastTask* tasks, size_t count, Type dst, Type src, cudaStream_t stream) {
  return for_tasks<kCastTasks>(tasks, count, kTilesAtOnce<kAdd> * kTile,
                               [&](const CastTasks& some) {
                                 return launch<cast_kernel<kAdd>>(
                                     (some.pieces() + kWarps - 1) / kWarps, stream, some, dst, src);
                               });
}

}  // namespace

cudaError_t convert(const CastTask* tasks, size_t count, Type dst_type, Type src_type,
                    cudaStream_t stream) {
  return cast<false>(tasks, count, dst_type, src_type, stream);
}

cudaError_t accumulate(const CastTask* tasks, size_t count, Type dst_type, Type src_type,
                       cudaStream_t stream) {
  return cast<true>(tasks, count, dst_type, src_type, stream);
}

}  // namespace meron::cuda
