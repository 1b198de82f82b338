// SPDX-License-Identifier: Apache-2.0
#include "base/human_bytes.h"

#include <gtest/gtest.h>

namespace meron {
namespace {

TEST(HumanBytes, PowersOf1024WithOneDecimal) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(human_bytes(1 << 20), "1.0 MiB");
  EXPECT_EQ(human_bytes(3670016), "3.5 MiB");
  EXPECT_EQ(human_bytes(24ull << 30), "24.0 GiB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace meron
