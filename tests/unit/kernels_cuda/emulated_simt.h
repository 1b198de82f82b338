// SPDX-License-Identifier: Apache-2.0
// kernels/cuda/simt.h for the emulator: the same names, on the CPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator.h"
#include "kernels/cpu/half.h"
#include "kernels/cuda/stream.h"

#define MERON_KERNEL void
#define MERON_KERNEL_RESIDENT(blocks) void
#define MERON_DEVICE inline
// Blocks run one after the other: what one leaves in shared memory the next one finds.
#define MERON_SHARED static
#define MERON_PARAMETER const

struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

namespace meron::cuda {

inline unsigned thread_index() {
  return emulator::here.thread;
}
inline unsigned block_index() {
  return emulator::here.block;
}
inline unsigned block_count() {
  return emulator::here.blocks;
}

inline void sync_block() {
  emulator::meet_block();
}
template <class T>
T shuffle_xor(T value, unsigned lanes) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = emulator::meet(emulator::Meeting::shuffle, bits, lanes);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t max_of_warp(uint32_t value) {
  return static_cast<uint32_t>(emulator::meet(emulator::Meeting::maximum, value, 0));
}

inline void check_aligned(const void* address, size_t size) {
  if (reinterpret_cast<uintptr_t>(address) % size != 0) {
    emulator::fail("a word that is not aligned");
  }
}
template <class Word>
Word load_once(const void* from) {
  check_aligned(from, sizeof(Word));
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}
template <class Word>
void store_once(void* to, Word word) {
  check_aligned(to, sizeof(Word));
  std::memcpy(to, &word, sizeof(word));
}

template <class T>
void add_atomically(T* to, T value) {
  *to += value;
}
inline void or_atomically(uint32_t* to, uint32_t value) {
  *to |= value;
}
inline void max_atomically(float* to, float value) {
  *to = std::max(*to, value);
}

inline uint32_t pick_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = uint64_t{y} << 32 | x;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned byte = selector >> (4 * i) & 7;
    result |= static_cast<uint32_t>(both >> (8 * byte) & 0xff) << (8 * i);
  }
  return result;
}
// C++ does not define values that do not fit: the instruction takes the nearest integer that fits.
inline int32_t nearest_int(float value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p31f) return INT32_MAX;
  if (value < -0x1p31f) return INT32_MIN;
  return static_cast<int32_t>(std::nearbyint(value));
}
inline float widen_f16(uint16_t bits) {
  return kernels::f32_from_f16(bits);
}
inline uint32_t narrow_bf16(float low, float high) {
  return kernels::bf16_from_f32(low) | static_cast<uint32_t>(kernels::bf16_from_f32(high)) << 16;
}
inline uint32_t narrow_f16(float low, float high) {
  return kernels::f16_from_f32(low) | static_cast<uint32_t>(kernels::f16_from_f32(high)) << 16;
}

template <auto kKernel, class... Arguments>
cudaError_t launch(uint64_t blocks, cudaStream_t, const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(std::min<uint64_t>(blocks, emulator::kResidentBlocks));
  return emulator::succeeds(grid, kThreads, [&] { kKernel(arguments...); }) ? cudaSuccess
                                                                            : cudaErrorUnknown;
}
template <auto kKernel, class... Arguments>
cudaError_t launch_thread(cudaStream_t, const Arguments&... arguments) {
  return emulator::succeeds(1, 1, [&] { kKernel(arguments...); }) ? cudaSuccess : cudaErrorUnknown;
}

}  // namespace meron::cuda
