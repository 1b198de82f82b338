// SPDX-License-Identifier: Apache-2.0
// The sum of squares that kernels/cpu/reduce.h defines, of a tile that a warp holds, and how a
// block of threads collects such sums.
#pragma once

#include "kernels/cpu/exact_sum.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/tile.cuh"

namespace meron::cuda {

// A lane has columns 4q to 4q + 3 of the rows 2r and 2r + 1, where q and r are the lower three and
// upper two bits of its number; rows are 32 elements. After this half[h].v[k] is row 2k + h of
// column 4q + r.
MERON_DEVICE void swap_rows(Quad& quad, unsigned lane) {
  const bool odd = (lane & 8) != 0, upper = (lane & 16) != 0;
#pragma unroll
  for (unsigned c = 0; c < 4; c += 2) {
    const float got = shuffle_xor(odd ? quad.v[c] : quad.v[c + 1], 8);
    if (odd) {
      quad.v[c] = got;
    } else {
      quad.v[c + 1] = got;
    }
  }
#pragma unroll
  for (unsigned c = 0; c < 2; ++c) {
    const float got = shuffle_xor(upper ? quad.v[c] : quad.v[c + 2], 16);
    if (upper) {
      quad.v[c] = got;
    } else {
      quad.v[c + 2] = got;
    }
  }
}

// All lanes get it. Sums of 32 columns, each from the first row on, folded in halves: the column's
// number has q above r, so that the lanes that differ by 16 columns differ in bit 2.
MERON_DEVICE double sum_of_squares(Share share, unsigned lane) {
  swap_rows(share.half[0], lane);
  swap_rows(share.half[1], lane);
  double sum = 0;
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const auto value = static_cast<double>(share.half[h].v[k]);
      sum += value * value;
    }
  }
  sum += shuffle_xor(sum, 4);
  sum += shuffle_xor(sum, 2);
  sum += shuffle_xor(sum, 1);
  sum += shuffle_xor(sum, 16);
  sum += shuffle_xor(sum, 8);
  return sum;
}

// The sums of a block's warps, in shared memory: one for each warp, which no other adds to.
struct BlockSquares {
  SquaresPieces of_warp[kWarps];

  MERON_DEVICE void begin() {
    auto* words = reinterpret_cast<uint64_t*>(of_warp);
    for (unsigned i = thread_index(); i < sizeof(of_warp) / 8; i += kThreads) words[i] = 0;
    sync_block();
  }

  // By one lane of each warp.
  MERON_DEVICE void add(double value) {
    const kernels::ExactTerm term(value);
    SquaresPieces& own = of_warp[warp_index()];
    own.nonfinite |= term.nonfinite;
#pragma unroll
    for (unsigned k = 0; k < 3; ++k) own.pieces[term.first + k] += term.part[k];
  }

  MERON_DEVICE void end(SquaresPieces* to) {
    sync_block();
    const unsigned i = thread_index();
    if (i < SquaresPieces::kCount) {
      int64_t sum = 0;
      for (unsigned w = 0; w < kWarps; ++w) sum += of_warp[w].pieces[i];
      if (sum != 0) add_atomically(&to->pieces[i], sum);
    } else if (i == SquaresPieces::kCount) {
      uint32_t nonfinite = 0;
      for (unsigned w = 0; w < kWarps; ++w) nonfinite |= of_warp[w].nonfinite;
      if (nonfinite != 0) or_atomically(&to->nonfinite, nonfinite);
    }
  }
};

}  // namespace meron::cuda
