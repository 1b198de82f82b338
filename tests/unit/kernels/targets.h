// SPDX-License-Identifier: Apache-2.0
// Runs a test once for every instruction set that the kernels are compiled for and this CPU has.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "hwy/targets.h"

namespace meron::kernels {

class EachTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

// Declares the suite `name`, derived from EachTarget.
#define MERON_EACH_TARGET(name)                                                               \
  class name : public EachTarget {};                                                          \
  INSTANTIATE_TEST_SUITE_P(Cpu, name, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), \
                           [](const testing::TestParamInfo<int64_t>& info) {                  \
                             return std::string(hwy::TargetName(info.param));                 \
                           })

}  // namespace meron::kernels
