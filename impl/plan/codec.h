// SPDX-License-Identifier: Apache-2.0
// Wire codecs as a plan names them: how values are encoded between replicas. kernels/cpu/quant.h
// defines the encodings bit by bit.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/layout.h"

namespace meron {

enum class CodecKind : uint8_t { none, bf16, int8, int4 };

constexpr std::string_view name_of(CodecKind kind) {
  switch (kind) {
    case CodecKind::none:
      return "none";
    case CodecKind::bf16:
      return "bf16";
    case CodecKind::int8:
      return "int8";
    case CodecKind::int4:
      return "int4";
  }
  return "?";
}

inline constexpr uint32_t kLeastCodecBlock = 64;
inline constexpr uint32_t kMostCodecBlock = 2048;
inline constexpr uint32_t kMaxFeedbackReset = 1u << 30;

struct Codec {
  CodecKind kind = CodecKind::none;
  // The rest is for int8 and int4.
  uint32_t block = 256;     // elements that share a scale: a power of two
  bool stochastic = false;  // rounding; else to nearest
  bool hadamard = false;    // smooth outliers before rounding
  // Gradients: the rounding error is added to the next gradient (LoCo, arXiv 2407.04480), averaged
  // as `beta` * old + (1 - beta) * new and dropped after `feedback_reset` reductions (0: never).
  bool feedback = false;
  double feedback_beta = 0.0;
  uint32_t feedback_reset = 0;
  // Parameters: encodes the difference to the values that the receivers have decoded before. The
  // rounding error is thus part of the next difference.
  bool difference = false;
  // A unit with a larger relative error falls back to bf16; 0: never.
  double error_limit = 0.0;

  bool operator==(const Codec&) const = default;
  constexpr bool blocked() const { return kind == CodecKind::int8 || kind == CodecKind::int4; }
  // True for a codec that converts f32 to a type of 16 bits, `narrow_type`, and leaves arrays of 16
  // bits as they are.
  constexpr bool narrows() const { return kind == CodecKind::bf16; }
  constexpr DType narrow_type() const { return DType::bf16; }
  constexpr uint32_t bits() const { return kind == CodecKind::int8 ? 8 : 4; }
};

// Bytes of `elements` elements of `size` bytes each on the wire.
constexpr uint64_t wire_bytes(const Codec& codec, uint64_t elements, uint64_t size) {
  if (codec.kind == CodecKind::none) return elements * size;
  if (codec.narrows()) return elements * 2;
  const uint64_t blocks = (elements + codec.block - 1) / codec.block;
  return blocks * (uint64_t{codec.block} * codec.bits() / 8 + sizeof(float));
}

// The maximum: a unit may fall back to bf16, and values without a base for a difference take 16
// bits.
constexpr uint64_t room_bytes(const Codec& codec, uint64_t elements, uint64_t size) {
  const uint64_t bytes = wire_bytes(codec, elements, size);
  const bool may_grow = codec.error_limit > 0.0 || codec.difference;
  return may_grow && bytes < elements * 2 ? elements * 2 : bytes;
}

// The encoding of frozen parameters at rest, if the plan has int8.
constexpr Codec frozen_codec() {
  return {.kind = CodecKind::int8};
}

}  // namespace meron
