// SPDX-License-Identifier: Apache-2.0
// What the kernels use of a device, by names of our own: under nvcc they are CUDA's, and in
// tests/unit/kernels_cuda an emulator's, so that the same sources run without a device.
// (The build names the emulator's headers: kernels know nothing of tests.)
#pragma once

#include "kernels/cuda/stream.h"

namespace meron::cuda {

inline constexpr unsigned kThreads = 256;  // of every block
inline constexpr unsigned kLanes = 32;
inline constexpr unsigned kWarps = kThreads / kLanes;

}  // namespace meron::cuda

#if defined(MERON_EMULATED_SIMT)
#include MERON_EMULATED_SIMT
#else

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/half.h"

#define MERON_KERNEL __global__ void __launch_bounds__(meron::cuda::kThreads)
// With registers for so many blocks at once on each processor.
#define MERON_KERNEL_RESIDENT(blocks) \
  __global__ void __launch_bounds__(meron::cuda::kThreads, blocks)
#define MERON_DEVICE __device__ __forceinline__
#define MERON_SHARED __shared__
#define MERON_PARAMETER const __grid_constant__

namespace meron::cuda {

MERON_DEVICE unsigned thread_index() {
  return threadIdx.x;
}
MERON_DEVICE unsigned block_index() {
  return blockIdx.x;
}
MERON_DEVICE unsigned block_count() {
  return gridDim.x;
}

MERON_DEVICE void sync_block() {
  __syncthreads();
}
// All lanes of a warp take part in these.
template <class T>
MERON_DEVICE T shuffle_xor(T value, unsigned lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}
MERON_DEVICE uint32_t max_of_warp(uint32_t value) {
  return __reduce_max_sync(0xffffffffu, value);
}

// Loads and stores of words that are not read again soon. Addresses are aligned to the word's size.
template <class Word>
MERON_DEVICE Word load_once(const void* from) {
  return __ldcs(static_cast<const Word*>(from));
}
template <class Word>
MERON_DEVICE void store_once(void* to, Word value) {
  __stcs(static_cast<Word*>(to), value);
}

MERON_DEVICE void add_atomically(int64_t* to, int64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(int64_t));
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
MERON_DEVICE void add_atomically(double* to, double value) {
  atomicAdd(to, value);
}
MERON_DEVICE void or_atomically(uint32_t* to, uint32_t value) {
  atomicOr(to, value);
}
// Neither is negative.
MERON_DEVICE void max_atomically(float* to, float value) {
  atomicMax(reinterpret_cast<int*>(to), __float_as_int(value));
}

// Byte i of the result is the one that nibble i of `selector` names: 0 to 3 of x, 4 to 7 of y.
MERON_DEVICE uint32_t pick_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  return __byte_perm(x, y, selector);
}
// Ties to even.
MERON_DEVICE int32_t nearest_int(float value) {
  return __float2int_rn(value);
}

// The functions of half.h by instructions, which differ from them in NaNs alone. Narrowed are two
// at once, the first to the lower half.
MERON_DEVICE float widen_f16(uint16_t bits) {
  if ((bits & 0x7fffu) > 0x7c00u) return __uint_as_float(kernels::f32_from_f16_nan(bits));
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
MERON_DEVICE uint32_t narrow_bf16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  if (low != low || high != high) {
    const uint32_t lower = low != low ? kernels::bf16_from_nan(__float_as_uint(low)) : both;
    const uint32_t upper =
        high != high ? kernels::bf16_from_nan(__float_as_uint(high)) : both >> 16;
    both = (lower & 0xffffu) | upper << 16;
  }
  return both;
}
MERON_DEVICE uint32_t narrow_f16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  if (low != low || high != high) {
    const uint32_t lower = low != low ? kernels::f16_from_nan(__float_as_uint(low)) : both;
    const uint32_t upper = high != high ? kernels::f16_from_nan(__float_as_uint(high)) : both >> 16;
    both = (lower & 0xffffu) | upper << 16;
  }
  return both;
}

// Number of blocks of a kernel that are resident on the current device at once.
template <auto kKernel>
cudaError_t resident_blocks(unsigned* blocks) {
  constexpr int kDevices = 64;
  static std::atomic<unsigned> known[kDevices];
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (device < kDevices) {
    *blocks = known[device].load(std::memory_order_relaxed);
    if (*blocks != 0) return cudaSuccess;
  }
  int processors = 0, each = 0;
  cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &each, reinterpret_cast<const void*>(kKernel), static_cast<int>(kThreads), 0);
  }
  if (error != cudaSuccess) return error;
  *blocks = static_cast<unsigned>(std::max(1, processors * each));
  if (device < kDevices) known[device].store(*blocks, std::memory_order_relaxed);
  return cudaSuccess;
}

template <class... Parameters>
cudaError_t launch_blocks(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                          cudaStream_t stream, std::type_identity_t<Parameters>... values) {
  void* arguments[] = {const_cast<void*>(static_cast<const void*>(&values))...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads),
                          arguments, 0, stream);
}

// Runs a kernel with work for `blocks` blocks. Each block continues from block_index() in strides
// of block_count().
template <auto kKernel, class... Arguments>
cudaError_t launch(uint64_t blocks, cudaStream_t stream, const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  unsigned resident = 0;
  if (const cudaError_t error = resident_blocks<kKernel>(&resident); error != cudaSuccess) {
    return error;
  }
  const auto grid = static_cast<unsigned>(std::min<uint64_t>(blocks, resident));
  return launch_blocks(kKernel, grid, kThreads, stream, arguments...);
}

// Runs a kernel with one thread.
template <auto kKernel, class... Arguments>
cudaError_t launch_thread(cudaStream_t stream, const Arguments&... arguments) {
  return launch_blocks(kKernel, 1, 1, stream, arguments...);
}

}  // namespace meron::cuda

#endif  // MERON_EMULATED_SIMT
