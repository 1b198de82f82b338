// SPDX-License-Identifier: Apache-2.0
// What becomes of collectives between devices that are aborted, closed early, opened wrongly or
// called with what cannot be: each rank is told, and none hangs.
#include <filesystem>
#include <iterator>

#include "collective_ranks.h"

namespace meron {
namespace {

using testing::HasSubstr;

class CollectiveFailuresTest : public CollectivesTest {};

TEST_F(CollectiveFailuresTest, AnAbortEndsWhatWaitsForAPeer) {
  run_ranks(3, [](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(3 * 64);
    if (own.rank() == 2) {  // never comes
      while (own.communicator->ready().ok()) std::this_thread::sleep_for(100us);
      const auto heard = own.communicator->ready();
      EXPECT_EQ(heard.error().code(), MERON_E_ABORTED);
      EXPECT_THAT(heard.error().info().what, HasSubstr("rank 0 aborted"));
      return;
    }
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
    EXPECT_TRUE(own.is_ready());
    std::thread watchdog;
    if (own.rank() == 0) {
      watchdog = std::thread([&] {
        std::this_thread::sleep_for(20ms);
        EXPECT_TRUE(own.communicator->abort().ok());
      });
    }
    own.synchronize();  // returns
    if (watchdog.joinable()) watchdog.join();
    const auto failed = own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get());
    EXPECT_EQ(failed.error().code(), MERON_E_ABORTED);
    EXPECT_EQ(own.communicator->close().ok(), own.rank() == 0);
  });
}

// As links between GPUs are: no peer hears of an abort.
TEST_F(CollectiveFailuresTest, AnAbortMayBeHeardByNobody) {
  ::setenv("MERON_EMULATED_DEVICE", "alone=1", 1);
  run_ranks(2, [](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
    if (own.rank() == 0) {
      EXPECT_TRUE(own.communicator->abort().ok());
      EXPECT_EQ(own.communicator->ready().error().code(), MERON_E_ABORTED);
      return;
    }
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(own.is_ready());
    EXPECT_FALSE(*own.device->record(own.stream.get())->come());
    EXPECT_TRUE(own.communicator->abort().ok());
    own.synchronize();
  });
}

TEST_F(CollectiveFailuresTest, ACloseThatWaitsInVainAborts) {
  run_ranks(
      2,
      [](TestRank& own) {
        const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
        if (own.rank() == 0) return std::this_thread::sleep_for(150ms);
        ASSERT_TRUE(
            own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
        const Status closed = own.communicator->close();
        ASSERT_FALSE(closed.ok());
        EXPECT_EQ(closed.error().code(), MERON_E_TIMEOUT);
        EXPECT_THAT(closed.error().info().what, HasSubstr("launch 1"));
        EXPECT_EQ(own.communicator->ready().error().code(), MERON_E_CLOSED);
        own.synchronize();
      },
      50ms);
}

TEST_F(CollectiveFailuresTest, OneThatWasNotClosedIsAborted) {
  ::setenv("MERON_EMULATED_DEVICE", "alone=1", 1);  // each by itself
  run_ranks(2, [](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
    if (own.rank() == 0) return;
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
    own.communicator.reset();
    own.synchronize();
  });
}

TEST_F(CollectiveFailuresTest, RanksThatAskForDifferentThingsAreTold) {
  run_ranks(2, [](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
    const uint64_t bytes = own.rank() == 0 ? 64 : 32;
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), bytes, own.stream.get()).ok());
    own.synchronize();
    const auto failed = own.communicator->ready();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_MISMATCH);
    EXPECT_THAT(failed.error().info().what, HasSubstr("launch 1"));
    EXPECT_THAT(failed.error().info().what, HasSubstr("64"));
    EXPECT_THAT(failed.error().info().what, HasSubstr("32"));
  });
}

TEST_F(CollectiveFailuresTest, ACollectiveFailsWhereTheSettingsAskForIt) {
  ::setenv("MERON_EMULATED_DEVICE", "fail=3", 1);
  run_ranks(2, [](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
    void* const stream = own.stream.get();
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), 64, stream).ok());
    own.synchronize();
    // The third launch is the second one of either rank; the other may hear of it before its own.
    (void)own.communicator->all_gather(from.data(), to.data(), 64, stream);
    own.synchronize();
    const auto failed = own.communicator->ready();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_IO);
    EXPECT_THAT(failed.error().info().what, HasSubstr("as MERON_EMULATED_DEVICE asks"));
    EXPECT_FALSE(own.communicator->close().ok());
  });
}

TEST_F(CollectiveFailuresTest, WhatCannotBeOpenedIsNamed) {
  const auto library = open_collectives("emulated").value();
  EXPECT_THAT(library->name(), testing::StartsWith("emulated 0."));
  const CommunicatorId id = library->create_id().value();
  EXPECT_EQ(library->begin(id, 2, 2, 0, 1s).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(library->begin(id, 2, 0, 0, 0s).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(library->begin(CommunicatorId{}, 2, 0, 0, 1s).error().code(), MERON_E_ARGUMENT);
  const auto first = library->begin(id, 2, 0, 0, 1s);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(library->begin(id, 2, 0, 0, 1s).error().code(), MERON_E_DUPLICATE);
  EXPECT_FALSE(*(*first)->ready());  // rank 1 has not come
  const auto early = (*first)->all_gather(nullptr, nullptr, 0, nullptr);
  EXPECT_EQ(early.error().code(), MERON_E_STATE);
  EXPECT_THAT(early.error().info().what, HasSubstr("rank 0 of 2"));
  EXPECT_THAT(early.error().info().what, HasSubstr("1 of 2 ranks have come"));

  CommunicatorId other{};
  std::strcpy(reinterpret_cast<char*>(other.data()), "emulated 1 1 1");
  const auto refused = library->begin(other, 2, 0, 0, 1s);
  EXPECT_EQ(refused.error().code(), MERON_E_UNSUPPORTED);
  EXPECT_THAT(refused.error().info().what, HasSubstr("process 1"));
  EXPECT_EQ(open_collectives("gloo").error().code(), MERON_E_ARGUMENT);
}

// Both hear of it: neither would ever be ready.
TEST_F(CollectiveFailuresTest, RanksThatOpenItForDifferentSizesAreTold) {
  const auto library = open_collectives("emulated").value();
  const CommunicatorId id = library->create_id().value();
  const auto first = library->begin(id, 2, 0, 0, 1s), second = library->begin(id, 3, 1, 0, 1s);
  ASSERT_TRUE(first.ok() && second.ok());
  for (const auto& each : {*first, *second}) {
    const auto failed = each->ready();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_MISMATCH);
    EXPECT_THAT(failed.error().info().what, HasSubstr("for 3 ranks"));
  }
}

// Only this one fails: the others continue.
TEST_F(CollectiveFailuresTest, OneThatComesLateAndForAnotherSizeIsTold) {
  const auto library = open_collectives("emulated").value();
  const CommunicatorId id = library->create_id().value();
  const auto first = library->begin(id, 2, 0, 0, 1s).value();
  const auto second = library->begin(id, 2, 1, 0, 1s).value();
  for (int i = 0; i < 2; ++i) {  // each answers the other
    (void)first->ready();
    (void)second->ready();
  }
  const auto late = library->begin(id, 3, 2, 0, 1s).value();
  EXPECT_TRUE(*first->ready());
  EXPECT_EQ(late->ready().error().code(), MERON_E_MISMATCH);
  EXPECT_TRUE(*second->ready());
  EXPECT_TRUE(first->close().ok());
  EXPECT_TRUE(*second->ready());
  EXPECT_TRUE(second->close().ok());
}

TEST_F(CollectiveFailuresTest, OneThatIsClosedBeforeAllHaveComeTellsTheOthers) {
  const auto library = open_collectives("emulated").value();
  const CommunicatorId id = library->create_id().value();
  const auto first = library->begin(id, 3, 0, 0, 1s).value();
  const auto second = library->begin(id, 3, 1, 0, 1s).value();
  EXPECT_TRUE(first->close().ok());
  const auto failed = second->ready();
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().info().what, HasSubstr("rank 0 closed it before all ranks had come"));
}

TEST_F(CollectiveFailuresTest, ALaunchThatAPeerHasClosedBeforeIsAMismatch) {
  run_ranks(2, [](TestRank& own) {
    if (own.rank() == 1) {
      EXPECT_TRUE(own.communicator->close().ok());
      return;
    }
    const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
    own.synchronize();
    const auto failed = own.communicator->ready();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_MISMATCH);
    EXPECT_THAT(failed.error().info().what, HasSubstr("rank 1 closed it after 0 launches"));
  });
}

TEST_F(CollectiveFailuresTest, TheyCanBeSwitchedOff) {
  const auto library = open_collectives("emulated").value();
  const CommunicatorId id = library->create_id().value();
  ::setenv("MERON_EMULATED_DEVICE", "collectives=0", 1);
  const auto none = library->create_id();
  EXPECT_EQ(none.error().code(), MERON_E_UNSUPPORTED);
  EXPECT_THAT(none.error().info().what, HasSubstr("switched off by MERON_EMULATED_DEVICE"));
  EXPECT_EQ(library->begin(id, 1, 0, 0, 1s).error().code(), MERON_E_UNSUPPORTED);
}

TEST_F(CollectiveFailuresTest, NoDescriptorStaysOpen) {
  const auto open = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open();
  for (int round = 0; round < 3; ++round) {
    run_ranks(3, [round](TestRank& own) {
      if (round == 1 && own.rank() == 0) return;  // aborts it
      (void)own.communicator->close();
    });
  }
  EXPECT_EQ(open(), before);
}

TEST_F(CollectiveFailuresTest, PiecesAndStreamsThatCannotBeAreNamed) {
  ::setenv("MERON_EMULATED_DEVICE", "count=2", 1);
  run_ranks(1, [](TestRank& own) {
    const auto code = [&](const meron_exchange_piece& piece) {
      const std::array<meron_exchange_piece, 2> pieces{meron_exchange_piece{}, piece};
      const Status refused = own.communicator->exchange(pieces, own.stream.get());
      EXPECT_THAT(refused.error().info().what, HasSubstr("piece 1"));
      return refused.error().code();
    };
    EXPECT_EQ(code({1, 0, nullptr, 0, nullptr, 0}), MERON_E_ARGUMENT);
    EXPECT_EQ(code({-1, 0, nullptr, 0, nullptr, 0}), MERON_E_ARGUMENT);
    const char byte = 0;
    char other_bytes[8];
    EXPECT_EQ(code({0, 0, &byte, 1, other_bytes, 4}), MERON_E_ARGUMENT);
    EXPECT_EQ(code({0, 0, nullptr, 8, other_bytes, 8}), MERON_E_ARGUMENT);
    EXPECT_EQ(code({0, 0, &byte, 1, nullptr, 1}), MERON_E_ARGUMENT);
    EXPECT_EQ(
        own.communicator->all_gather(nullptr, other_bytes, 8, own.stream.get()).error().code(),
        MERON_E_ARGUMENT);
    const auto other = open_device("emulated:1").value();
    auto stream = other->create_stream(false).value();
    EXPECT_EQ(own.communicator->all_gather(nullptr, nullptr, 0, stream.get()).error().code(),
              MERON_E_ARGUMENT);
    EXPECT_TRUE(own.communicator->exchange({}, own.stream.get()).ok());
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

TEST_F(CollectiveFailuresTest, ABrokenDeviceEndsTheCollectivesOfAll) {
  ::setenv("MERON_EMULATED_DEVICE", "break=1", 1);
  std::latch allocated(2);  // both, while the device that they share still works
  run_ranks(2, [&](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
    allocated.arrive_and_wait();
    (void)own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get());
    (void)own.device->synchronize(own.stream.get());
    while (own.communicator->ready().ok()) std::this_thread::sleep_for(100us);
    EXPECT_THAT(own.communicator->ready().error().info().what, HasSubstr("is broken"));
  });
}

}  // namespace
}  // namespace meron
