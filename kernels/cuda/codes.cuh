// SPDX-License-Identifier: Apache-2.0
// Block quantization of a tile that a warp holds (kernels/cpu/quant.h).
#pragma once

#include "kernels/cpu/quant_block.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/tile.cuh"

namespace meron::cuda {

using kernels::BlockScale;

// The parameters of a format for kernels, without divisions.
struct Layout {
  QuantFormat format;
  uint32_t shift;   // of an element's number to its block's
  uint64_t padded;  // elements in full blocks

  Layout() = default;
  Layout(QuantFormat of, uint64_t n)
      : format(of),
        shift(static_cast<uint32_t>(std::countr_zero(of.block))),
        padded(kernels::encoded_blocks(n, of) * of.block) {}
};

// The transform of each run of 64, which eight lanes hold: strides 1 and 2 within a quad, 4 to 16
// between lanes, 32 between a lane's quads.
MERON_DEVICE void butterflies(Share& share, unsigned lane) {
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    float(&v)[4] = share.half[h].v;
    const float a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
    v[0] = a + c;
    v[1] = b + d;
    v[2] = a - c;
    v[3] = b - d;
  }
#pragma unroll
  for (unsigned apart = 1; apart <= 4; apart *= 2) {
    const bool second = (lane & apart) != 0;
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) {
        const float own = share.half[h].v[c], other = shuffle_xor(own, apart);
        share.half[h].v[c] = second ? other - own : own + other;
      }
    }
  }
#pragma unroll
  for (unsigned c = 0; c < 4; ++c) {
    const float a = share.half[0].v[c], b = share.half[1].v[c];
    share.half[0].v[c] = a + b;
    share.half[1].v[c] = a - b;
  }
}

// Before encoding: scaled first, so that no sum of finite values overflows.
MERON_DEVICE void transform(Share& share, unsigned lane) {
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) share.half[h].v[c] *= kernels::kTransformScale;
  }
  butterflies(share, lane);
}

// --- Bytes of a lane's share: two words of 8-bit integers, one of 4-bit ones

struct Codes {
  uint32_t word[2];
};

template <uint32_t kBits>
inline constexpr unsigned kCodeWords = kBits == 8 ? 2 : 1;

// Of the tile that begins at element `begin`: codes from `padded` on do not exist.
template <uint32_t kBits, bool kWhole>
MERON_DEVICE Codes load_codes(const void* payload, uint64_t begin, uint64_t padded, unsigned lane) {
  if constexpr (kBits == 8) {
    const uint64_t at = begin + quad_of(lane);
    return {
        {load_bytes<kWhole>(payload, at, padded), load_bytes<kWhole>(payload, at + 32, padded)}};
  } else {
    const uint64_t at = begin / 2 + lane * 4;
    return {{load_bytes<kWhole>(payload, at, padded / 2), 0}};
  }
}

template <uint32_t kBits, bool kWhole>
MERON_DEVICE void store_codes(void* payload, uint64_t begin, uint64_t padded, const Codes& codes,
                              unsigned lane) {
  if constexpr (kBits == 8) {
    const uint64_t at = begin + quad_of(lane);
    store_bytes<kWhole>(payload, at, padded, codes.word[0]);
    store_bytes<kWhole>(payload, at + 32, padded, codes.word[1]);
  } else {
    store_bytes<kWhole>(payload, begin / 2 + lane * 4, padded / 2, codes.word[0]);
  }
}

// The integers of a share as floats, times `factor`. A byte becomes the last one of a float whose
// unit is 1, which is exact and takes no conversion.
template <uint32_t kBits>
MERON_DEVICE Share decode(const Codes& codes, float factor) {
  constexpr uint32_t kUnit = 0x4b000000;  // 2^23
  constexpr float kBias = 0x1p23f + (kBits == 8 ? 128.0f : 8.0f);
  uint32_t bytes[2];
  if constexpr (kBits == 8) {
    bytes[0] = codes.word[0] ^ 0x80808080u;
    bytes[1] = codes.word[1] ^ 0x80808080u;
  } else {
    const uint32_t biased = codes.word[0] ^ 0x88888888u;
    bytes[0] = biased & 0x0f0f0f0fu;
    bytes[1] = biased >> 4 & 0x0f0f0f0fu;
  }
  Share share;
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      const float biased = std::bit_cast<float>(pick_bytes(bytes[h], kUnit, 0x7650 + c));
      share.half[h].v[c] = (biased - kBias) * factor;
    }
  }
  return share;
}

template <uint32_t kBits>
MERON_DEVICE Share decode(const Codes& codes, float step, QuantFormat format, unsigned lane) {
  Share share = decode<kBits>(codes, step);
  if (format.hadamard) butterflies(share, lane);
  return share;
}

// The step of the block of a lane's elements, which begin at element `at`.
template <bool kWhole>
MERON_DEVICE float load_step(const float* steps, uint64_t at, const Layout& layout) {
  if (!kWhole && at >= layout.padded) return 0;
  return steps[at >> layout.shift];
}

// --- Encoding

MERON_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

MERON_DEVICE uint32_t largest_of(const Share& share) {
  uint32_t largest = 0;
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) largest = larger(largest, magnitude_of(share.half[h].v[c]));
  }
  return largest;
}

// Among the lanes of a block, as far as it is in this warp.
MERON_DEVICE uint32_t largest_of_block(uint32_t value, uint32_t block) {
  if (block >= kTile) return max_of_warp(value);
  value = larger(value, shuffle_xor(value, 1));
  value = larger(value, shuffle_xor(value, 2));
  value = larger(value, shuffle_xor(value, 4));
  return block > 64 ? larger(value, shuffle_xor(value, 8)) : value;
}

// Integers of a share, in the low bits.
struct Integers {
  uint32_t half[2][4];
};

MERON_DEVICE Integers round_nearest(const Share& t, float inverse) {
  Integers q;
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      // The addition leaves no space for a fraction.
      q.half[h][c] = std::bit_cast<uint32_t>(t.half[h].v[c] * inverse + 0x1.8p23f);
    }
  }
  return q;
}

// `number`: of the share's first element. It is in a run of 64, which begins at a multiple of 64.
MERON_DEVICE Integers round_at_random(const Share& t, float inverse, uint64_t seed,
                                      uint64_t number) {
  const uint64_t key = kernels::quant_key(seed, static_cast<uint32_t>(number >> 32));
  const float scaled = inverse * 0x1p24f;
  Integers q;
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      const uint32_t random = kernels::quant_hash(key, static_cast<uint32_t>(number) + h * 32 + c);
      const int32_t sum = nearest_int(t.half[h].v[c] * scaled) + static_cast<int32_t>(random >> 8);
      q.half[h][c] = static_cast<uint32_t>(sum >> 24);
    }
  }
  return q;
}

template <uint32_t kBits>
MERON_DEVICE Codes pack(const Integers& q) {
  const uint32_t first = join_bytes(q.half[0][0], q.half[0][1], q.half[0][2], q.half[0][3]);
  const uint32_t second = join_bytes(q.half[1][0], q.half[1][1], q.half[1][2], q.half[1][3]);
  if constexpr (kBits == 8) {
    return {{first, second}};
  } else {
    return {{(first & 0x0f0f0f0fu) | (second & 0x0f0f0f0fu) << 4, 0}};
  }
}

// Of a block whose largest magnitude is known.
template <uint32_t kBits>
MERON_DEVICE Codes encode(const Share& t, const BlockScale& scale, QuantFormat format,
                          uint64_t seed, uint64_t number) {
  if (scale.kind != BlockScale::Kind::ordinary) return {{0, 0}};
  return pack<kBits>(format.stochastic ? round_at_random(t, scale.inverse, seed, number)
                                       : round_nearest(t, scale.inverse));
}

}  // namespace meron::cuda
