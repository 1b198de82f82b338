// SPDX-License-Identifier: Apache-2.0
// Arrays on the wire: what a codec makes of them, and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/type.h"
#include "os/thread_pool.h"
#include "plan/codec.h"

namespace meron {

inline kernels::Type kernel_type(DType dtype) {
  return static_cast<kernels::Type>(static_cast<int32_t>(dtype));
}

// The type on the wire of values of `type` under a codec without blocks.
constexpr DType narrow(const Codec& codec, DType type) {
  return type == DType::f32 ? codec.narrow_type() : type;
}

// Error feedback: the encoding error of an array, which is added to the next array that is encoded
// in its place.
struct Feedback {
  float* residual = nullptr;  // one per element
  float beta = 0.0f;
};

// Applies a codec other than `none` to arrays of f32, bf16 or f16. ("bf16" copies 16-bit arrays
// unchanged.) An encoded array has wire_bytes(codec, n, ...) bytes and is aligned to 4.
class Wire {
 public:
  Wire(const Codec& codec, ThreadPool& threads) : codec_(codec), threads_(threads) {}

  // `seed` is for stochastic rounding; equal on all ranks that encode the same array. With `minus`,
  // an array of the same type, the difference is encoded, as int8 or int4.
  void encode(std::byte* out, const void* in, DType type, uint64_t n, uint64_t seed,
              const Feedback& feedback, kernels::QuantError* error,
              const void* minus = nullptr) const;
  // `handed_over`: into memory that other cores have read; see kernels/cpu/copy.h. `difference`:
  // the result is added to `out`.
  void decode(void* out, DType type, const std::byte* in, uint64_t n, bool handed_over,
              bool difference = false) const;
  // out = ([out] + in[0] + ... + in[count - 1]) * scale in f32, from left to right; with the
  // squares of the results as kernels::reduce takes them.
  void sum(float* out, bool accumulate, const std::byte* const* in, size_t count, float scale,
           uint64_t n, kernels::ExactSum* squares) const;

 private:
  kernels::QuantFormat format() const;

  Codec codec_;
  ThreadPool& threads_;
};

}  // namespace meron
