// SPDX-License-Identifier: Apache-2.0
#include "device/modules.h"

#include <gmock/gmock.h>

namespace meron {
namespace {

using testing::HasSubstr;

TEST(DeviceNameTest, WhatNamesNoDeviceIsRefused) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "emulated: 0", "emulated:9"}) {
    const auto device = open_device(name);
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_EQ(device.error().code(), MERON_E_ARGUMENT) << name;
    EXPECT_FALSE(device.error().info().advice.empty()) << name;
  }
}

TEST(DeviceNameTest, ANumberOutOfRangeSaysHowManyThereAre) {
  const auto device = open_device("emulated:1");
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.error().info().what, HasSubstr("emulated:1"));
  EXPECT_THAT(device.error().info().what, HasSubstr("one, number 0"));
}

TEST(DeviceNameTest, TheEmulatedOneOpens) {
  const auto device = open_device("emulated");
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->name(), "emulated:0 (emulated)");
}

// It opens if there is a GPU; otherwise the reason tells the user what to do.
TEST(CudaModuleTest, ItWorksOrSaysWhyNot) {
  const DeviceModule module = probe_cuda();
  const auto device = open_device("cuda:0");
  EXPECT_EQ(module.reason.empty(), device.ok());
  if (device.ok()) {
    EXPECT_FALSE(module.devices.empty());
    EXPECT_THAT(module.summary, HasSubstr("CUDA"));
    return;
  }
  EXPECT_EQ(device.error().code(), MERON_E_UNSUPPORTED);
  EXPECT_FALSE(module.reason.empty());
}

// Where NCCL is not found, its module says what was looked for.
TEST(NcclModuleTest, ItWorksOrSaysWhyNot) {
  const DeviceModule module = probe_nccl();
  const auto library = open_collectives("nccl");
  EXPECT_EQ(module.reason.empty(), library.ok());
  if (library.ok()) {
    EXPECT_EQ(module.summary, (*library)->name());
    return;
  }
  EXPECT_EQ(library.error().code(), MERON_E_UNSUPPORTED);
  // The module itself is found beside libmeron.so, which this test is not.
  EXPECT_THAT(module.reason,
              testing::AnyOf(HasSubstr("MERON_NCCL_LIBRARY"), HasSubstr("libmeron_nccl.so")));
}

}  // namespace
}  // namespace meron
