// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <random>

#include "runner.h"

namespace meron::cuda {
namespace {

using kernels::ExactSum;

void expect_norm(const ExactSum& sum, double max_norm) {
  SCOPED_TRACE(testing::Message() << "sum " << sum.value() << ", at most " << max_norm);
  Mirror pieces = mirror_of(sum.pieces()), scale = mirror_of(StepScale{}), norm = mirror_of(0.0);
  ASSERT_EQ(finish_norm(pieces.data<SquaresPieces>(), 1.0, max_norm, scale.data<StepScale>(),
                        norm.data<double>(), stream()),
            cudaSuccess);
  // As StepOperation::agree_on_norm().
  const double expected = std::sqrt(sum.value());
  const double clip = max_norm > 0.0 ? std::min(1.0, max_norm / (expected + 1e-6)) : 1.0;
  EXPECT_TRUE(same_value(norm.value<double>(), expected));
  const auto made = scale.value<StepScale>();
  EXPECT_EQ(made.skip != 0, !std::isfinite(expected));
  if (made.skip == 0) {
    EXPECT_EQ(made.grad_scale, static_cast<float>(clip));
  }
}

TEST(CudaNorm, IsTheHosts) {
  std::mt19937_64 random(1);
  for (const double max_norm : {0.0, 1.0, 0.3, 1e300}) {
    expect_norm(ExactSum(), max_norm);
    for (int i = 0; i < 40; ++i) {
      ExactSum sum;
      for (int k = 0; k < 50; ++k) {
        const int exponent = static_cast<int>(random() % 1900) - 1060;
        const auto mantissa = static_cast<double>(random() >> 11);
        sum.add(std::ldexp(mantissa, (i % 2 == 0 ? exponent % 40 : exponent) - 53));
      }
      expect_norm(sum, max_norm);
    }
  }
}

TEST(CudaNorm, WhatIsNotFiniteSkips) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double term : {kInfinity, -kInfinity, std::nan(""), -1.0}) {
    ExactSum sum;
    sum.add(0.5);
    sum.add(term);
    expect_norm(sum, 1.0);
  }
  ExactSum too_large;
  for (int i = 0; i < 4; ++i) too_large.add(std::numeric_limits<double>::max());
  expect_norm(too_large, 1.0);
}

TEST(CudaNorm, GradientsMayBeScaled) {
  ExactSum sum;
  sum.add(16.0 * 1024 * 1024);
  Mirror pieces = mirror_of(sum.pieces()), scale = mirror_of(StepScale{}), norm = mirror_of(0.0);
  ASSERT_EQ(finish_norm(pieces.data<SquaresPieces>(), 1.0 / 1024, 2.0, scale.data<StepScale>(),
                        norm.data<double>(), stream()),
            cudaSuccess);
  EXPECT_EQ(norm.value<double>(), 4.0);
  EXPECT_EQ(scale.value<StepScale>().grad_scale,
            static_cast<float>(2.0 / (4.0 + 1e-6) * (1.0 / 1024)));
}

}  // namespace
}  // namespace meron::cuda
