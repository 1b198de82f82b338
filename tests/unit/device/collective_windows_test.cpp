// SPDX-License-Identifier: Apache-2.0
// Memory that collectives register, and windows: memory of theirs that all ranks reach.
#include "collective_ranks.h"

namespace meron {
namespace {

using testing::HasSubstr;

class CollectiveWindowsTest : public CollectivesTest {};

TEST_F(CollectiveWindowsTest, MemoryIsRegisteredUntilItsObjectGoes) {
  run_ranks(1, [](TestRank& own) {
    const DeviceMemory data = own.memory(64);
    auto registration = own.communicator->register_memory(data.data(), 64);
    ASSERT_TRUE(registration.ok());
    EXPECT_TRUE(static_cast<bool>(*registration));
    EXPECT_TRUE(own.communicator->close().ok());
    registration->reset();  // after the close: it went with it
  });
}

TEST_F(CollectiveWindowsTest, RegistrationIsDemandedWhereTheSettingsAskForIt) {
  ::setenv("MERON_EMULATED_DEVICE", "registers=2", 1);
  run_ranks(1, [](TestRank& own) {
    const DeviceMemory data = own.memory(64), to = own.memory(64);
    const auto gathered = [&](uint64_t bytes) {
      const Status asked =
          own.communicator->all_gather(data.data(), to.data(), bytes, own.stream.get());
      return asked.ok() ? MERON_OK : asked.error().code();
    };
    EXPECT_EQ(gathered(64), MERON_OK);  // nothing has been registered yet
    auto registration = own.communicator->register_memory(data.data(), 32);
    ASSERT_TRUE(registration.ok());
    EXPECT_EQ(gathered(32), MERON_OK);
    EXPECT_EQ(gathered(33), MERON_E_ARGUMENT);
    registration->reset();
    EXPECT_EQ(gathered(32), MERON_E_ARGUMENT);
    own.synchronize();
  });
  ::setenv("MERON_EMULATED_DEVICE", "registers=0", 1);
  run_ranks(1, [](TestRank& own) {
    const DeviceMemory data = own.memory(64);
    EXPECT_EQ(own.communicator->register_memory(data.data(), 64).error().code(),
              MERON_E_UNSUPPORTED);
  });
}

TEST_P(CollectiveWindowsTest, GathersWithinAWindow) {
  run_ranks(GetParam(), [](TestRank& own) {
    auto window = own.communicator->open_window(4096);
    ASSERT_TRUE(window.ok()) << window.error().info().what;
    std::byte* const to = window->data() + 1024;
    std::byte* const from = to + 64 * own.rank();
    own.fill(from, own.rank() + 1, 64);
    ASSERT_TRUE(own.communicator->all_gather(from, to, 64, own.stream.get()).ok());
    own.synchronize();
    EXPECT_TRUE(own.is_ready());
    for (int i = 0; i < 64 * own.size(); ++i) EXPECT_EQ(static_cast<int>(to[i]), i / 64 + 1);
    window->reset();
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

TEST_F(CollectiveWindowsTest, RanksThatGatherElsewhereInAWindowAreTold) {
  run_ranks(2, [](TestRank& own) {
    const auto window = own.communicator->open_window(4096).value();
    std::byte* const to = window.data() + 256 * own.rank();
    ASSERT_TRUE(own.communicator->all_gather(to + 64 * own.rank(), to, 64, own.stream.get()).ok());
    own.synchronize();
    const auto failed = own.communicator->ready();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_MISMATCH);
    EXPECT_THAT(failed.error().info().what, HasSubstr("at 0 of a window"));
    EXPECT_THAT(failed.error().info().what, HasSubstr("at 256 of a window"));
  });
}

TEST_F(CollectiveWindowsTest, AWindowIsMemoryOfTheDevice) {
  ::setenv("MERON_EMULATED_DEVICE", "memory=10000", 1);
  run_ranks(1, [](TestRank& own) {
    {
      const auto window = own.communicator->open_window(8000);
      ASSERT_TRUE(window.ok());
      EXPECT_EQ(own.device->free_bytes().value(), 2000U);
      EXPECT_EQ(own.communicator->open_window(8000).error().code(), MERON_E_NO_MEMORY);
    }
    EXPECT_EQ(own.device->free_bytes().value(), 10000U);
    const auto left = own.communicator->open_window(8000);
    EXPECT_TRUE(own.communicator->close().ok());  // it goes too
    EXPECT_EQ(own.device->free_bytes().value(), 10000U);
  });
  ::setenv("MERON_EMULATED_DEVICE", "windows=0", 1);
  run_ranks(1, [](TestRank& own) {
    EXPECT_EQ(own.communicator->open_window(8000).error().code(), MERON_E_UNSUPPORTED);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveWindowsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace meron
