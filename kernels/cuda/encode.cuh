// SPDX-License-Identifier: Apache-2.0
// How a block of threads encodes tiles, and says what was lost: what quantize() and
// dequantize_sum_quantize() share.
#pragma once

#include <limits>

#include "kernels/cuda/codes.cuh"

namespace meron::cuda {

// Where codes go.
struct Target {
  Layout layout;
  std::byte* payload;
  float* steps;
  uint64_t seed, first_element;
  QuantError* error;  // or null
};

// Maxima of quantization blocks that are longer than a warp's elements. Two turns: whoever writes
// the next one has seen all others past the sync before, hence done with reading the last.
struct EncodeShared {
  uint32_t largest[2][kWarps];
  double lost[2][kWarps], all[2][kWarps];
};

// One thread's part in encoding, over all the tiles that it meets.
class Encoder {
 public:
  MERON_DEVICE Encoder(const Target& to, EncodeShared& shared)
      : to_(to), shared_(shared), lane_(lane_index()), warp_(warp_index()) {}

  // The largest magnitude of the block that each tile's values of this lane are in. All threads of
  // the block of threads call it together.
  template <unsigned kTiles>
  MERON_DEVICE void find_largest(const Share (&t)[kTiles], uint32_t (&largest)[kTiles]) {
    const uint32_t block = to_.layout.format.block;
#pragma unroll
    for (unsigned i = 0; i < kTiles; ++i) {
      largest[i] = largest_of_block(largest_of(t[i]), block);
    }
    if (block <= kTile) return;
    uint32_t all = 0;
#pragma unroll
    for (unsigned i = 0; i < kTiles; ++i) all = larger(all, largest[i]);
    if (block > kTiles * kTile) {
      turn_ ^= 1;
      if (lane_ == 0) shared_.largest[turn_][warp_] = all;
      sync_block();
      const unsigned warps = block / (kTiles * kTile), first = warp_ & ~(warps - 1);
      for (unsigned w = first; w < first + warps; ++w) {
        all = larger(all, shared_.largest[turn_][w]);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kTiles; ++i) largest[i] = all;
  }

  // Encodes the tile at element `begin` and writes it. `whole`: the tile is complete, and its bytes
  // are aligned.
  MERON_DEVICE Codes put(const Share& t, const BlockScale& scale, uint64_t begin, bool whole) {
    const uint64_t at = begin + quad_of(lane_), padded = to_.layout.padded;
    const QuantFormat format = to_.layout.format;
    if ((at & (format.block - 1)) == 0 && at < padded) {
      to_.steps[at >> to_.layout.shift] = scale.step;
    }
    const uint64_t number = to_.first_element + at;
    return format.bits == 8 ? put_as<8>(t, scale, begin, number, whole)
                            : put_as<4>(t, scale, begin, number, whole);
  }

  // The decoded values.
  MERON_DEVICE Share decoded(const Codes& codes, const BlockScale& scale) const {
    return to_.layout.format.bits == 8 ? decode<8>(codes, scale.step, to_.layout.format, lane_)
                                       : decode<4>(codes, scale.step, to_.layout.format, lane_);
  }

  // Counts what is lost of v; called as find_largest() is.
  MERON_DEVICE void count(const Share& v, const Share& decoded, const BlockScale& scale,
                          uint64_t begin) {
    const uint32_t block = to_.layout.format.block;
    double lost = 0, all = 0;
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) {
        const double value = v.half[h].v[c];
        const double difference = value - static_cast<double>(decoded.half[h].v[c]);
        lost += difference * difference;
        all += value * value;
      }
    }
#pragma unroll
    for (unsigned apart = 1; apart < kLanes; apart *= 2) {
      const double other_lost = shuffle_xor(lost, apart), other_all = shuffle_xor(all, apart);
      if (apart * 8 < block) {
        lost += other_lost;
        all += other_all;
      }
    }
    if (block > kTile) {
      // The turn is that of find_largest().
      if (lane_ == 0) {
        shared_.lost[turn_][warp_] = lost;
        shared_.all[turn_][warp_] = all;
      }
      sync_block();
      const unsigned warps = block / kTile;
      for (unsigned w = warp_ + 1; w < warp_ + warps && w < kWarps; ++w) {
        lost += shared_.lost[turn_][w];
        all += shared_.all[turn_][w];
      }
    }
    const uint64_t at = begin + quad_of(lane_);
    if ((at & (block - 1)) != 0 || at >= to_.layout.padded) return;
    if (scale.kind == BlockScale::Kind::ordinary) {
      error_.add_block(lost, all);
    } else if (scale.kind == BlockScale::Kind::nonfinite) {
      error_.add_block(std::numeric_limits<double>::infinity(), 0);
    }
  }

  // Adds up what the warp's lanes have counted.
  MERON_DEVICE void finish() {
    if (to_.error == nullptr) return;
#pragma unroll
    for (unsigned apart = 1; apart < kLanes; apart *= 2) {
      QuantError other;
      other.error_squares = shuffle_xor(error_.error_squares, apart);
      other.squares = shuffle_xor(error_.squares, apart);
      other.worst_block = shuffle_xor(error_.worst_block, apart);
      error_.merge(other);
    }
    if (lane_ != 0) return;
    add_atomically(&to_.error->error_squares, error_.error_squares);
    add_atomically(&to_.error->squares, error_.squares);
    max_atomically(&to_.error->worst_block, error_.worst_block);
  }

 private:
  template <uint32_t kBits>
  MERON_DEVICE Codes put_as(const Share& t, const BlockScale& scale, uint64_t begin,
                            uint64_t number, bool whole) {
    const Codes codes = encode<kBits>(t, scale, to_.layout.format, to_.seed, number);
    if (whole) {
      store_codes<kBits, true>(to_.payload, begin, to_.layout.padded, codes, lane_);
    } else {
      store_codes<kBits, false>(to_.payload, begin, to_.layout.padded, codes, lane_);
    }
    return codes;
  }

  const Target& to_;
  EncodeShared& shared_;
  const unsigned lane_, warp_;
  unsigned turn_ = 0;
  QuantError error_;
};

}  // namespace meron::cuda
