// SPDX-License-Identifier: Apache-2.0
// How a warp holds kTile elements: all kernels share one layout. In each run of 64 elements, eight
// lanes have four elements in a row each of its first half, and the same of its second. So a warp
// reads and writes whole sectors of every type, 4-bit codes (which pair elements that lie 32 apart)
// fall to the lane that has their elements, the transform needs three shuffles, and a block of 64
// is eight lanes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/half.h"
#include "kernels/cpu/type.h"
#include "kernels/cuda/simt.h"

namespace meron::cuda {

using kernels::Type;

inline constexpr unsigned kTile = 256;  // elements
static_assert(kTile == kernels::kBlock, "a tile is what squares are summed of");

// Four elements in a row, as they are stored: 16-bit elements fill the first two words.
struct RawQuad {
  uint32_t word[4];
};

struct Quad {
  float v[4];
};

// A lane's share of a tile.
struct Share {
  Quad half[2];
};

MERON_DEVICE unsigned lane_index() {
  return thread_index() % kLanes;
}
MERON_DEVICE unsigned warp_index() {
  return thread_index() / kLanes;
}

// Offset of a lane's first quad in its tile. The second one is 32 elements further.
MERON_DEVICE unsigned quad_of(unsigned lane) {
  return lane / 8 * 64 + lane % 8 * 4;
}

MERON_DEVICE bool aligned(const void* array, unsigned bytes) {
  return (reinterpret_cast<uintptr_t>(array) & (bytes - 1)) == 0;
}
// True if quads of it are aligned to words.
MERON_DEVICE bool aligned(const void* array, Type type) {
  return aligned(array, type == Type::f32 ? 16u : 8u);
}

// Quads from element i of `array` on. kWhole: all of it is before n, and aligned; else elements
// from n on are read as 0 and not written.
template <bool kWhole>
MERON_DEVICE RawQuad load_raw(const void* array, Type type, uint64_t i, uint64_t n) {
  RawQuad raw{};
  if (type == Type::f32) {
    const auto* from = static_cast<const float*>(array) + i;
    if constexpr (kWhole) {
      const auto words = load_once<uint4>(from);
      raw = {{words.x, words.y, words.z, words.w}};
    } else {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) {
        if (i + c < n) raw.word[c] = load_once<uint32_t>(from + c);
      }
    }
    return raw;
  }
  const auto* from = static_cast<const uint16_t*>(array) + i;
  if constexpr (kWhole) {
    const auto words = load_once<uint2>(from);
    raw = {{words.x, words.y, 0, 0}};
  } else {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      if (i + c < n) {
        raw.word[c / 2] |= static_cast<uint32_t>(load_once<uint16_t>(from + c)) << (16 * (c % 2));
      }
    }
  }
  return raw;
}

template <bool kWhole>
MERON_DEVICE void store_raw(void* array, Type type, uint64_t i, uint64_t n, const RawQuad& raw) {
  if (type == Type::f32) {
    auto* to = static_cast<float*>(array) + i;
    if constexpr (kWhole) {
      store_once(to, uint4{raw.word[0], raw.word[1], raw.word[2], raw.word[3]});
    } else {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) {
        if (i + c < n) store_once(to + c, raw.word[c]);
      }
    }
    return;
  }
  auto* to = static_cast<uint16_t*>(array) + i;
  if constexpr (kWhole) {
    store_once(to, uint2{raw.word[0], raw.word[1]});
  } else {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      if (i + c < n) store_once(to + c, static_cast<uint16_t>(raw.word[c / 2] >> (16 * (c % 2))));
    }
  }
}

// Four bytes from `array` + i on, likewise.
template <bool kWhole>
MERON_DEVICE uint32_t load_bytes(const void* array, uint64_t i, uint64_t n) {
  const auto* from = static_cast<const uint8_t*>(array) + i;
  uint32_t word = 0;
  if constexpr (kWhole) {
    word = load_once<uint32_t>(from);
  } else {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      if (i + c < n) word |= static_cast<uint32_t>(load_once<uint8_t>(from + c)) << (8 * c);
    }
  }
  return word;
}

template <bool kWhole>
MERON_DEVICE void store_bytes(void* array, uint64_t i, uint64_t n, uint32_t word) {
  auto* to = static_cast<uint8_t*>(array) + i;
  if constexpr (kWhole) {
    store_once(to, word);
  } else {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) {
      if (i + c < n) store_once(to + c, static_cast<uint8_t>(word >> (8 * c)));
    }
  }
}

// The low bytes of four words.
MERON_DEVICE uint32_t join_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return pick_bytes(pick_bytes(a, b, 0x0040), pick_bytes(c, d, 0x0040), 0x5410);
}

MERON_DEVICE Quad widen(const RawQuad& raw, Type type) {
  Quad quad;
#pragma unroll
  for (unsigned c = 0; c < 4; ++c) {
    const auto upper = static_cast<uint16_t>(raw.word[c / 2] >> (16 * (c % 2)));
    if (type == Type::f32) {
      quad.v[c] = std::bit_cast<float>(raw.word[c]);
    } else if (type == Type::bf16) {
      quad.v[c] = kernels::f32_from_bf16(upper);
    } else {
      quad.v[c] = widen_f16(upper);
    }
  }
  return quad;
}

MERON_DEVICE RawQuad narrow(const Quad& quad, Type type) {
  RawQuad raw{};
  if (type == Type::f32) {
#pragma unroll
    for (unsigned c = 0; c < 4; ++c) raw.word[c] = std::bit_cast<uint32_t>(quad.v[c]);
    return raw;
  }
#pragma unroll
  for (unsigned c = 0; c < 4; c += 2) {
    const float low = quad.v[c], high = quad.v[c + 1];
    raw.word[c / 2] = type == Type::bf16 ? narrow_bf16(low, high) : narrow_f16(low, high);
  }
  return raw;
}

MERON_DEVICE uint32_t magnitude_of(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

}  // namespace meron::cuda
