// SPDX-License-Identifier: Apache-2.0
// Defines the functions that hwy/targets.h and hwy/base.h declare; see README.md for why they are
// here.
#include "hwy/targets.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/highway/chosen_target.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace hwy {
namespace {

std::atomic<int64_t> disabled_targets{0};
std::atomic<int64_t> targets_for_test{0};

#if HWY_ARCH_X86

struct CpuidLeaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;

  explicit CpuidLeaf(unsigned leaf) { __get_cpuid_count(leaf, 0, &eax, &ebx, &ecx, &edx); }
};

// Each set implies the ones before it. __builtin_cpu_supports also asks whether the operating
// system saves the wide registers; the bits that older compilers cannot name are read directly
// and are meaningless alone.
int64_t detect_targets() {
  __builtin_cpu_init();
  const CpuidLeaf basic(1), extended(7), amd(0x80000001u);
  const bool f16c = (basic.ecx >> 29) & 1;
  const bool vaes = (extended.ecx >> 9) & 1;
  const bool lzcnt = (amd.ecx >> 5) & 1;

  int64_t targets = HWY_EMU128 | HWY_SCALAR;
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.1") || !__builtin_cpu_supports("sse4.2") ||
      !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("aes")) {
    return targets;
  }
  targets |= HWY_SSE4;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") || !f16c || !lzcnt) {
    return targets;
  }
  targets |= HWY_AVX2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd")) {
    return targets;
  }
  targets |= HWY_AVX3;
  if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("vpclmulqdq") ||
      !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vbmi2") ||
      !__builtin_cpu_supports("avx512vpopcntdq") || !__builtin_cpu_supports("avx512bitalg") ||
      !__builtin_cpu_supports("gfni") || !vaes) {
    return targets;
  }
  return targets | HWY_AVX3_DL;
}

#else

// Elsewhere the instruction set that the compiler may assume is the one that is used.
int64_t detect_targets() {
  return HWY_BASELINE_TARGETS;
}

#endif

constexpr const char* kVariable = "MERON_CPU_TARGET";

// Of this CPU, as far as kernels are compiled for them. A better target is a lower bit.
int64_t usable_targets() {
  static const int64_t usable = detect_targets() & HWY_TARGETS;
  return usable;
}

template <class Visit>
void for_each_target(int64_t targets, Visit visit) {
  for (; targets != 0; targets &= targets - 1) visit(targets & ~(targets - 1));
}

// The one with this name; 0: none of these.
int64_t target_called(const char* name, int64_t targets) {
  int64_t found = 0;
  for_each_target(targets, [&](int64_t target) {
    if (std::strcmp(TargetName(target), name) == 0) found = target;
  });
  return found;
}

// The target that the environment requests, and those that a CPU with it has besides.
int64_t requested_targets() {
  const char* const name = std::getenv(kVariable);
  const int64_t target = name == nullptr ? 0 : target_called(name, usable_targets());
  return target == 0 ? usable_targets() : usable_targets() & ~(target - 1);
}

}  // namespace

int64_t SupportedTargets() {
  static const int64_t detected = requested_targets();
  int64_t targets = targets_for_test.load();
  if (targets == 0) targets = detected;
  targets &= ~disabled_targets.load();
  return targets != 0 ? targets : HWY_STATIC_TARGET;
}

void DisableTargets(int64_t targets) {
  disabled_targets.store(targets);
  GetChosenTarget().DeInit();  // the next dispatch chooses again
}

void SetSupportedTargetsForTest(int64_t targets) {
  targets_for_test.store(targets);
  GetChosenTarget().DeInit();
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

// Reached only from HWY_DASSERT in debug and sanitizer builds: a kernel's own defect.
void Abort(const char* file, int line, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "%s:%d: ", file, line);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
  std::abort();
}

}  // namespace hwy

namespace meron::kernels {

std::string target_names() {
  std::string names;
  hwy::for_each_target(hwy::usable_targets(), [&](int64_t target) {
    names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  });
  return names;
}

std::string target_problem() {
  const char* const name = std::getenv(hwy::kVariable);
  if (name == nullptr || hwy::target_called(name, hwy::usable_targets()) != 0) return {};
  const bool known = hwy::target_called(name, HWY_TARGETS) != 0;
  return std::string(hwy::kVariable) + " is '" + name + "', " +
         (known ? "an instruction set that this CPU lacks"
                : "which is no instruction set of the kernels");
}

}  // namespace meron::kernels
