// SPDX-License-Identifier: Apache-2.0
// The oldest NCCL that is taken, found by MERON_NCCL_LIBRARY: it registers no memory and opens
// no windows, and a policy is not shown to it.
#include "fake.h"

namespace meron {
namespace {

using testing::HasSubstr;

TEST(OldNcclTest, ItIsFoundByItsNameAndWorksWithoutRegistration) {
  ::setenv("MERON_NCCL_LIBRARY", FAKE_OLD_NCCL, 1);
  const auto library = open_collectives("nccl");
  ASSERT_TRUE(library.ok()) << library.error().info().what;
  EXPECT_EQ((*library)->name(), "nccl 2.18.1 at " FAKE_OLD_NCCL);
  run_ranks(
      2,
      [](DeviceCommunicator& communicator) {
        std::vector<int> values(2, -1);
        values[communicator.rank()] = communicator.rank() + 5;
        ASSERT_TRUE(
            communicator
                .all_gather(&values[communicator.rank()], values.data(), sizeof(int), nullptr)
                .ok());
        EXPECT_THAT(values, testing::ElementsAre(5, 6));
        const auto registered = communicator.register_memory(values.data(), 8);
        ASSERT_FALSE(registered.ok());
        EXPECT_EQ(registered.error().code(), MERON_E_UNSUPPORTED);
        EXPECT_THAT(registered.error().info().what, HasSubstr("2.18.1 registers no memory"));
        const auto window = communicator.open_window(8);
        ASSERT_FALSE(window.ok());
        EXPECT_EQ(window.error().code(), MERON_E_UNSUPPORTED);
        EXPECT_THAT(window.error().info().what, HasSubstr("2.18.1 gathers by no copy engines"));
        EXPECT_TRUE(communicator.close().ok());
      },
      20s, true);
}

}  // namespace
}  // namespace meron
