// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state_code.h"

#include <cstring>

namespace meron::kernels {
namespace {

uint32_t largest_magnitude(const float* from, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(from[i]) & 0x7fffffffu);
  }
  return largest;
}

template <StateKind kKind>
bool keeps(const CodeScale& scale, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint8_t code = Code<kKind>::encode(from[i], scale.inverse, half_below_cut(kCodeCut));
    const float again = Code<kKind>::decode(code, scale.scale);
    if (std::bit_cast<uint32_t>(again) != std::bit_cast<uint32_t>(from[i])) return false;
  }
  return true;
}

// A block that was decoded keeps the scale that it had, so that it gets the same codes again. That
// is the scale of its largest element or one next to it: rounding at random may have made it 7
// times the scale, or c less than 3.5 times.
template <StateKind kKind>
CodeScale scale_of(const float* from, size_t n) {
  const CodeScale scale(largest_magnitude(from, n));
  if (!scale.finite || keeps<kKind>(scale, from, n)) return scale;
  for (const float factor : {2.0f, 0.5f}) {
    CodeScale other = scale;
    other.scale *= factor;
    other.inverse /= factor;
    if (keeps<kKind>(other, from, n)) return other;
  }
  return scale;
}

template <StateKind kKind>
void encode_codes(uint8_t* codes, float* scales, const float* from, size_t n) {
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t size = std::min(kBlock, n - begin);
    const CodeScale scale = scale_of<kKind>(from + begin, size);
    scales[begin / kBlock] = scale.scale;
    if (!scale.finite) {
      std::memset(codes + begin, 0, size);
      continue;
    }
    for (size_t i = begin; i < begin + size; ++i) {
      codes[i] = Code<kKind>::encode(from[i], scale.inverse, half_below_cut(kCodeCut));
    }
  }
}

template <StateKind kKind>
void decode_codes(float* to, const uint8_t* codes, const float* scales, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = Code<kKind>::decode(codes[i], scales[i / kBlock]);
}

}  // namespace

void encode_states(StateType type, StateKind kind, void* data, float* scales, const float* from,
                   size_t n) {
  auto* codes = static_cast<uint8_t*>(data);
  switch (type) {
    case StateType::f32:
      if (n != 0) std::memcpy(data, from, n * sizeof(float));
      return;
    case StateType::bf16:
      for (size_t i = 0; i < n; ++i) static_cast<uint16_t*>(data)[i] = bf16_from_f32(from[i]);
      return;
    case StateType::int8:
      if (kind == StateKind::average)
        return encode_codes<StateKind::average>(codes, scales, from, n);
      return encode_codes<StateKind::square>(codes, scales, from, n);
  }
}

void decode_states(StateType type, StateKind kind, float* to, const void* data, const float* scales,
                   size_t n) {
  const auto* codes = static_cast<const uint8_t*>(data);
  switch (type) {
    case StateType::f32:
      if (n != 0) std::memcpy(to, data, n * sizeof(float));
      return;
    case StateType::bf16:
      for (size_t i = 0; i < n; ++i) to[i] = f32_from_bf16(static_cast<const uint16_t*>(data)[i]);
      return;
    case StateType::int8:
      if (kind == StateKind::average) return decode_codes<StateKind::average>(to, codes, scales, n);
      return decode_codes<StateKind::square>(to, codes, scales, n);
  }
}

}  // namespace meron::kernels
