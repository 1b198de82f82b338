// SPDX-License-Identifier: Apache-2.0
// What the kernels call an element: its storage type, and the block in which sums are taken.
#pragma once

#include <cstddef>
#include <cstdint>

// Functions on one element are the definition for other devices too, which compile them again.
#if defined(__CUDACC__)
#define MERON_HOST_DEVICE __host__ __device__
#else
#define MERON_HOST_DEVICE
#endif

namespace meron::kernels {

// Storage type of an element. Arithmetic is always done in f32.
enum class Type : int32_t { f32 = 0, bf16 = 1, f16 = 2 };

constexpr size_t size_of(Type type) {
  return type == Type::f32 ? 4 : 2;
}

// Elements per partial sum of squares (see reduce.h). Callers that split a range over threads or
// ranks cut it at multiples of kBlock; every sum then has the same parts wherever the cuts are.
inline constexpr size_t kBlock = 256;

}  // namespace meron::kernels
