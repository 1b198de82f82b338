// SPDX-License-Identifier: Apache-2.0
// The floating-point mode of the engine: round to nearest, denormals kept, exceptions
// masked. A program may run in another mode (torch.set_flush_denormal, -ffast-math, fesetround), in
// which the ranks, and the threads of one rank, would compute different bits.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace meron {

// The register that controls f32 and f64 arithmetic on this thread, and its value for the engine.
// Processors other than x86-64, ARM64 and RISC-V keep the mode that they have.
#if defined(__x86_64__)
inline constexpr uint64_t kFloatMode = 0x1f80;  // MXCSR
inline uint64_t float_mode() {
  return _mm_getcsr();
}
inline void set_float_mode(uint64_t mode) {
  _mm_setcsr(static_cast<unsigned>(mode));
}
#elif defined(__aarch64__)
inline constexpr uint64_t kFloatMode = 0;  // FPCR
inline uint64_t float_mode() {
  uint64_t bits;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
inline void set_float_mode(uint64_t mode) {
  asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#elif defined(__riscv_flen)
inline constexpr uint64_t kFloatMode = 0;  // fcsr
inline uint64_t float_mode() {
  uint64_t bits;
  asm volatile("frcsr %0" : "=r"(bits));
  return bits;
}
inline void set_float_mode(uint64_t mode) {
  asm volatile("fscsr %0" : : "r"(mode) : "memory");
}
#else
inline constexpr uint64_t kFloatMode = 0;
inline uint64_t float_mode() {
  return kFloatMode;
}
inline void set_float_mode(uint64_t) {}
#endif

// The engine's mode while in scope, then the mode that was found, with its exception flags.
class FloatModeScope {
 public:
  FloatModeScope() : found_(float_mode()) {
    if (found_ != kFloatMode) set_float_mode(kFloatMode);
  }
  ~FloatModeScope() {
    if (float_mode() != found_) set_float_mode(found_);
  }
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;

 private:
  const uint64_t found_;
};

}  // namespace meron
