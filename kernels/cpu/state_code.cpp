// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/state_code.h"

#include <cstring>

namespace meron::kernels {
namespace {

BlockRange range_of(const float* from, size_t n) {
  BlockRange range;
  for (size_t i = 0; i < n; ++i) range.include(from[i]);
  return range;
}

bool keeps(const AverageCode& code, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float again = code.decode(code.encode(from[i], half_below_cut(code.cut)));
    if (std::bit_cast<uint32_t>(again) != std::bit_cast<uint32_t>(from[i])) return false;
  }
  return true;
}

// A block that was decoded keeps its values. Squares do by themselves: they lie on the grid that
// their range gets, or on every so many of its numbers. Averages get the format and the scale that
// they had, which is that of the largest element or one next to it: rounding at random may have
// made it 7 times the scale, or with the offset less than 3.5 times. Other averages have 3 bits of
// mantissa until their next step, for their squares are not known here.
AverageCode average_code_of(const float* from, size_t n) {
  const BlockRange range = range_of(from, n);
  for (uint32_t format = 0; format < AverageCode::kFormats; ++format) {
    for (const float factor : {1.0f, 2.0f, 0.5f}) {
      AverageCode code(range, format);
      if (!code.finite()) return code;
      code.scale *= factor;
      code.inverse /= factor;
      if (keeps(code, from, n)) return code;
    }
  }
  return AverageCode(range, 0);
}

template <class Code>
void encode_block(const Code& code, uint32_t cut, uint8_t* codes, const float* from, size_t n) {
  for (size_t i = 0; i < n; ++i) codes[i] = code.encode(from[i], half_below_cut(cut));
}

void encode_codes(StateKind kind, uint8_t* codes, float* words, const float* from, size_t n) {
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t size = std::min(kBlock, n - begin);
    const float* const block = from + begin;
    if (kind == StateKind::average) {
      const AverageCode code = average_code_of(block, size);
      words[begin / kBlock] = code.word();
      encode_block(code, code.cut, codes + begin, block, size);
    } else {
      const SquareCode code(range_of(block, size));
      words[begin / kBlock] = code.word();
      encode_block(code, code.shift, codes + begin, block, size);
    }
  }
}

template <class Code>
void decode_codes(float* to, const uint8_t* codes, const float* words, size_t n) {
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const Code code(words[begin / kBlock]);
    for (size_t i = begin; i < std::min(n, begin + kBlock); ++i) to[i] = code.decode(codes[i]);
  }
}

}  // namespace

void encode_states(StateType type, StateKind kind, void* data, float* words, const float* from,
                   size_t n) {
  switch (type) {
    case StateType::f32:
      if (n != 0) std::memcpy(data, from, n * sizeof(float));
      return;
    case StateType::bf16:
      for (size_t i = 0; i < n; ++i) static_cast<uint16_t*>(data)[i] = bf16_from_f32(from[i]);
      return;
    case StateType::int8:
      return encode_codes(kind, static_cast<uint8_t*>(data), words, from, n);
  }
}

void decode_states(StateType type, StateKind kind, float* to, const void* data, const float* words,
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
      if (kind == StateKind::average) return decode_codes<AverageCode>(to, codes, words, n);
      return decode_codes<SquareCode>(to, codes, words, n);
  }
}

}  // namespace meron::kernels
