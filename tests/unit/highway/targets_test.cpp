// SPDX-License-Identifier: Apache-2.0
#include "hwy/targets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace {

class Targets : public testing::Test {
 protected:
  void TearDown() override {
    hwy::DisableTargets(0);
    hwy::SetSupportedTargetsForTest(0);
  }
};

// The kernel's list of CPU flags, as a second opinion on CPUID.
bool cpu_has(const std::string& flag) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("flags")) return (line + ' ').find(' ' + flag + ' ') != std::string::npos;
  }
  return false;
}

TEST_F(Targets, SomeTargetIsAlwaysThere) {
  EXPECT_NE(hwy::SupportedTargets(), 0);
  hwy::DisableTargets(~int64_t{0});
  EXPECT_EQ(hwy::SupportedTargets(), HWY_STATIC_TARGET);
}

TEST_F(Targets, DisabledTargetsAreLeftOutUntilEnabledAgain) {
  const int64_t all = hwy::SupportedTargets();
  const int64_t best = all & ~(all - 1);
  hwy::DisableTargets(best);
  EXPECT_EQ(hwy::SupportedTargets() & best, best == HWY_STATIC_TARGET ? best : 0);
  hwy::DisableTargets(0);
  EXPECT_EQ(hwy::SupportedTargets(), all);
}

TEST_F(Targets, ATestSeesTheTargetsItAskedFor) {
  hwy::SetSupportedTargetsForTest(HWY_STATIC_TARGET);
  EXPECT_EQ(hwy::SupportedTargets(), HWY_STATIC_TARGET);
}

// Kernels choose again after a change: a table's first entry is the one that chooses.
TEST_F(Targets, AChangeMakesTheNextDispatchChooseAgain) {
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_TRUE(hwy::GetChosenTarget().IsInitialized());
  hwy::SetSupportedTargetsForTest(HWY_STATIC_TARGET);
  EXPECT_FALSE(hwy::GetChosenTarget().IsInitialized());
}

#if HWY_ARCH_X86
TEST_F(Targets, AgreeWithTheKernelAboutThisCpu) {
  if (!cpu_has("sse2")) GTEST_SKIP() << "/proc/cpuinfo does not list this CPU's flags";
  const int64_t targets = hwy::SupportedTargets();
  EXPECT_EQ((targets & HWY_AVX2) != 0, cpu_has("avx2") && cpu_has("fma") && cpu_has("f16c"));
  EXPECT_EQ((targets & HWY_AVX3) != 0, cpu_has("avx512f") && cpu_has("avx512vl") &&
                                           cpu_has("avx512bw") && cpu_has("avx512dq"));
  EXPECT_TRUE(!(targets & HWY_AVX3_DL) || (cpu_has("vaes") && cpu_has("avx512_vbmi2")));
}

TEST_F(Targets, AWiderSetIncludesTheNarrowerOnes) {
  const int64_t targets = hwy::SupportedTargets();
  const int64_t ladder[] = {HWY_SSSE3, HWY_SSE4, HWY_AVX2, HWY_AVX3, HWY_AVX3_DL};
  bool narrower = true;
  for (const int64_t target : ladder) {
    if ((target & HWY_TARGETS) == 0) continue;  // kernels are not compiled for it
    const bool has = (targets & target) != 0;
    EXPECT_TRUE(narrower || !has) << hwy::TargetName(target);
    narrower = has;
  }
}
#endif

}  // namespace
