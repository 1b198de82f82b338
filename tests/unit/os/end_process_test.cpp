// SPDX-License-Identifier: Apache-2.0
#include "os/end_process.h"

#include <gtest/gtest.h>

namespace meron {
namespace {

TEST(EndProcessDeathTest, SaysWhyAndExits) {
  EXPECT_EXIT(end_process("rank 3: the device hangs"), testing::ExitedWithCode(1),
              "^meron: rank 3: the device hangs; this process ends\n$");
}

}  // namespace
}  // namespace meron
