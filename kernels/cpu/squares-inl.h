// SPDX-License-Identifier: Apache-2.0
// The sum of squares that reduce.h defines, for the target that is being compiled.

// Per-target guard (Highway's convention): the file is read again for each target.
#if defined(MERON_KERNELS_CPU_SQUARES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERON_KERNELS_CPU_SQUARES_INL_H_
#undef MERON_KERNELS_CPU_SQUARES_INL_H_
#else
#define MERON_KERNELS_CPU_SQUARES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/type.h"

HWY_BEFORE_NAMESPACE();
namespace meron::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sums the squares of kBlock values as reduce.h says. Four sums at a time hide the latency of an
// addition.
HWY_INLINE double sum_of_squares(const float* values) {
  constexpr size_t kSums = 32;
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, hn::CappedTag<double, 8>> df;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN double sums[kSums];
  for (size_t j = 0; j < kSums; j += 4 * lanes) {
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
    for (size_t i = j; i < kBlock; i += kSums) {
      const auto value0 = hn::PromoteTo(d, hn::LoadU(df, values + i));
      const auto value1 = hn::PromoteTo(d, hn::LoadU(df, values + i + lanes));
      const auto value2 = hn::PromoteTo(d, hn::LoadU(df, values + i + 2 * lanes));
      const auto value3 = hn::PromoteTo(d, hn::LoadU(df, values + i + 3 * lanes));
      sum0 = hn::Add(sum0, hn::Mul(value0, value0));
      sum1 = hn::Add(sum1, hn::Mul(value1, value1));
      sum2 = hn::Add(sum2, hn::Mul(value2, value2));
      sum3 = hn::Add(sum3, hn::Mul(value3, value3));
    }
    hn::StoreU(sum0, d, sums + j);
    hn::StoreU(sum1, d, sums + j + lanes);
    hn::StoreU(sum2, d, sums + j + 2 * lanes);
    hn::StoreU(sum3, d, sums + j + 3 * lanes);
  }
  size_t half = kSums / 2;
  for (; half >= lanes; half /= 2) {
    for (size_t j = 0; j < half; j += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, sums + j), hn::LoadU(d, sums + j + half)), d, sums + j);
    }
  }
  for (; half != 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

}  // namespace meron::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
