// SPDX-License-Identifier: Apache-2.0
// What the engine relies on of collectives between devices, shown on the emulated ones: who gets
// which bytes, order on streams, and that nothing hangs which is aborted.
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "collective_ranks.h"

namespace meron {
namespace {

using testing::HasSubstr;

class CollectivesTest : public testing::TestWithParam<int> {
 protected:
  void TearDown() override { ::unsetenv("MERON_EMULATED_DEVICE"); }
};

int at(const std::byte* data, uint64_t index) {
  return std::to_integer<int>(data[index]);
}

TEST_P(CollectivesTest, AnAllGatherHasTheBytesInTheOrderOfRanks) {
  constexpr uint64_t kBytes = 1000;
  run_ranks(GetParam(), [](TestRank& own) {
    const auto n = static_cast<uint64_t>(own.size()), r = static_cast<uint64_t>(own.rank());
    const DeviceMemory from = own.memory(kBytes), to = own.memory(n * kBytes);
    const DeviceMemory place = own.memory(n * kBytes);
    own.fill(from.data(), own.rank() + 1, kBytes);
    own.fill(place.data() + r * kBytes, own.rank() + 11, kBytes);
    void* const stream = own.stream.get();
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), kBytes, stream).ok());
    ASSERT_TRUE(
        own.communicator->all_gather(place.data() + r * kBytes, place.data(), kBytes, stream).ok());
    own.synchronize();
    for (uint64_t i = 0; i < n; ++i) {
      EXPECT_EQ(at(to.data(), i * kBytes), i + 1);
      EXPECT_EQ(at(to.data(), i * kBytes + kBytes - 1), i + 1);
      EXPECT_EQ(at(place.data(), i * kBytes + kBytes - 1), i + 11);
    }
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

// Rank r sends p + 1 pieces of 10 r + p bytes to rank p; none to the rank after its own.
TEST_P(CollectivesTest, AnExchangeOfUnevenPieces) {
  const auto bytes = [](int from, int to) { return static_cast<uint64_t>(10 * from + to + 1); };
  const auto sends = [](int from, int to, int size) { return size < 3 || to != (from + 1) % size; };
  run_ranks(GetParam(), [&](TestRank& own) {
    const int me = own.rank(), size = own.size();
    const DeviceMemory out = own.memory(100), in = own.memory(4096);
    own.fill(out.data(), me + 1, 50);
    own.fill(out.data() + 50, me + 101, 50);
    std::vector<meron_exchange_piece> pieces;
    for (int peer = size - 1; peer >= 0; --peer) {
      for (int k = 0; k < 2; ++k) {
        meron_exchange_piece piece{};
        piece.peer = peer;
        piece.send = out.data() + 50 * k;
        piece.send_bytes = sends(me, peer, size) ? bytes(me, peer) : 0;
        piece.receive = in.data() + 200 * peer + 100 * k;
        piece.receive_bytes = sends(peer, me, size) ? bytes(peer, me) : 0;
        pieces.push_back(piece);
      }
    }
    ASSERT_TRUE(own.communicator->exchange(pieces, own.stream.get()).ok());
    own.synchronize();
    for (int peer = 0; peer < size; ++peer) {
      if (!sends(peer, me, size)) continue;
      const std::byte* const got = in.data() + 200 * peer;
      EXPECT_EQ(at(got, bytes(peer, me) - 1), peer + 1);
      EXPECT_EQ(at(got, 100), peer + 101);
    }
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

// Without a wait of the host: what lies before and behind a launch on the stream is ordered.
TEST_P(CollectivesTest, WorkOfTheStreamIsBeforeAndBehindIt) {
  ::setenv("MERON_EMULATED_DEVICE", "delay=300", 1);
  constexpr uint64_t kBytes = 4096;
  run_ranks(GetParam(), [](TestRank& own) {
    const auto n = static_cast<uint64_t>(own.size());
    const DeviceMemory from = own.memory(kBytes), to = own.memory(n * kBytes);
    const DeviceMemory kept = own.memory(n * kBytes);
    for (int round = 0; round < 5; ++round) {
      own.fill(from.data(), 10 * round + own.rank(), kBytes);
      ASSERT_TRUE(
          own.communicator->all_gather(from.data(), to.data(), kBytes, own.stream.get()).ok());
      own.fill(from.data(), 255, kBytes);  // peers have read it
      ASSERT_TRUE(own.device->copy(kept.data(), to.data(), n * kBytes, own.stream.get()).ok());
      if (round % 2 == 0) continue;
      own.synchronize();
      for (uint64_t i = 0; i < n; ++i) {
        EXPECT_EQ(at(kept.data(), i * kBytes + kBytes / 2), 10 * round + static_cast<int>(i));
      }
    }
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

TEST_P(CollectivesTest, AGroupIsOneLaunch) {
  run_ranks(GetParam(), [](TestRank& own) {
    const auto n = static_cast<uint64_t>(own.size());
    const DeviceMemory from = own.memory(64), one = own.memory(n * 32), two = own.memory(n * 16);
    void* const stream = own.stream.get();
    own.fill(from.data(), own.rank() + 1, 64);
    ASSERT_TRUE(own.communicator->begin_group().ok());
    EXPECT_EQ(own.communicator->begin_group().error().code(), MERON_E_STATE);
    ASSERT_TRUE(own.communicator->all_gather(from.data(), one.data(), 32, stream).ok());
    ASSERT_TRUE(own.communicator->all_gather(from.data(), two.data(), 16, stream).ok());
    // Refused, and the group has the others.
    EXPECT_EQ(own.communicator->all_gather(from.data(), two.data(), 16, nullptr).error().code(),
              MERON_E_UNSUPPORTED);
    ASSERT_TRUE(own.communicator->end_group().ok());
    EXPECT_EQ(own.communicator->end_group().error().code(), MERON_E_STATE);
    ASSERT_TRUE(own.communicator->begin_group().ok());
    ASSERT_TRUE(own.communicator->end_group().ok());
    own.synchronize();
    EXPECT_EQ(at(one.data(), n * 32 - 1), n);
    EXPECT_EQ(at(two.data(), n * 16 - 1), n);
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

TEST_P(CollectivesTest, EachRankHasADeviceOfItsOwn) {
  ::setenv("MERON_EMULATED_DEVICE", "count=4", 1);
  run_ranks(
      GetParam(),
      [](TestRank& own) {
        EXPECT_EQ(own.device->info().index, own.rank());
        const auto n = static_cast<uint64_t>(own.size());
        const DeviceMemory from = own.memory(64), to = own.memory(n * 64);
        own.fill(from.data(), own.rank() + 1, 64);
        ASSERT_TRUE(
            own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
        own.synchronize();
        EXPECT_EQ(at(to.data(), n * 64 - 1), n);
        EXPECT_TRUE(own.communicator->close().ok());
      },
      20s, true);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest, testing::Values(1, 2, 3, 4));

TEST_F(CollectivesTest, AnAbortEndsWhatWaitsForAPeer) {
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
    EXPECT_TRUE(*own.communicator->ready());
    std::thread watchdog;
    if (own.rank() == 0) {
      watchdog = std::thread([&] {
        std::this_thread::sleep_for(20ms);
        EXPECT_TRUE(own.communicator->abort().ok());
      });
    }
    own.synchronize();  // comes to an end
    if (watchdog.joinable()) watchdog.join();
    const auto failed = own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get());
    EXPECT_EQ(failed.error().code(), MERON_E_ABORTED);
    EXPECT_EQ(own.communicator->close().ok(), own.rank() == 0);
  });
}

// As links between GPUs are: no peer hears of an abort.
TEST_F(CollectivesTest, AnAbortMayBeHeardByNobody) {
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
    EXPECT_TRUE(*own.communicator->ready());
    EXPECT_FALSE(*own.device->record(own.stream.get())->come());
    EXPECT_TRUE(own.communicator->abort().ok());
    own.synchronize();
  });
}

TEST_F(CollectivesTest, ACloseThatWaitsInVainAborts) {
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

TEST_F(CollectivesTest, OneThatWasNotClosedIsAborted) {
  ::setenv("MERON_EMULATED_DEVICE", "alone=1", 1);  // each by itself
  run_ranks(2, [](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(2 * 64);
    if (own.rank() == 0) return;
    ASSERT_TRUE(own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
    own.communicator.reset();
    own.synchronize();
  });
}

TEST_F(CollectivesTest, RanksThatAskForDifferentThingsAreTold) {
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

TEST_F(CollectivesTest, ACollectiveFailsWhereTheSettingsAskForIt) {
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

TEST_F(CollectivesTest, MemoryIsRegisteredUntilItsObjectGoes) {
  run_ranks(1, [](TestRank& own) {
    const DeviceMemory data = own.memory(64);
    auto registration = own.communicator->register_memory(data.data(), 64);
    ASSERT_TRUE(registration.ok());
    EXPECT_TRUE(static_cast<bool>(*registration));
    EXPECT_TRUE(own.communicator->close().ok());
    registration->reset();  // after the close: it went with it
  });
}

TEST_F(CollectivesTest, RegistrationIsDemandedWhereTheSettingsAskForIt) {
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

TEST_P(CollectivesTest, GathersWithinAWindow) {
  run_ranks(GetParam(), [](TestRank& own) {
    auto window = own.communicator->open_window(4096);
    ASSERT_TRUE(window.ok()) << window.error().info().what;
    std::byte* const to = window->data() + 1024;
    std::byte* const from = to + 64 * own.rank();
    own.fill(from, own.rank() + 1, 64);
    ASSERT_TRUE(own.communicator->all_gather(from, to, 64, own.stream.get()).ok());
    own.synchronize();
    EXPECT_TRUE(*own.communicator->ready());
    for (int i = 0; i < 64 * own.size(); ++i) EXPECT_EQ(static_cast<int>(to[i]), i / 64 + 1);
    window->reset();
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

TEST_F(CollectivesTest, RanksThatGatherElsewhereInAWindowAreTold) {
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

TEST_F(CollectivesTest, AWindowIsMemoryOfTheDevice) {
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

TEST_F(CollectivesTest, WhatCannotBeOpenedIsNamed) {
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
TEST_F(CollectivesTest, RanksThatOpenItForDifferentSizesAreTold) {
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

// It is refused alone: the others go on.
TEST_F(CollectivesTest, OneThatComesLateAndForAnotherSizeIsTold) {
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

TEST_F(CollectivesTest, OneThatIsClosedBeforeAllHaveComeTellsTheOthers) {
  const auto library = open_collectives("emulated").value();
  const CommunicatorId id = library->create_id().value();
  const auto first = library->begin(id, 3, 0, 0, 1s).value();
  const auto second = library->begin(id, 3, 1, 0, 1s).value();
  EXPECT_TRUE(first->close().ok());
  const auto failed = second->ready();
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().info().what, HasSubstr("rank 0 closed it before all ranks had come"));
}

TEST_F(CollectivesTest, ALaunchThatAPeerHasClosedBeforeIsAMismatch) {
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

// A launch waits for those before it, on whichever stream each of them lies.
TEST_F(CollectivesTest, LaunchesOnSeveralStreamsKeepTheirOrder) {
  constexpr int kRounds = 40;
  run_ranks(3, [](TestRank& own) {
    const DeviceMemory from = own.memory(kRounds), to = own.memory(uint64_t{3} * kRounds);
    for (int i = 0; i < kRounds; ++i) own.fill(from.data() + i, 3 * i + own.rank(), 1);
    own.synchronize();
    std::vector<DeviceStream> streams;
    for (int i = 0; i < 3; ++i) streams.push_back(own.device->create_stream(false).value());
    for (int i = 0; i < kRounds; ++i) {  // each rank has another stream for it
      void* const stream = streams[(i * (own.rank() + 1)) % 3].get();
      ASSERT_TRUE(own.communicator->all_gather(from.data() + i, to.data() + 3 * i, 1, stream).ok());
    }
    for (const DeviceStream& each : streams) {
      ASSERT_TRUE(own.device->synchronize(each.get()).ok());
    }
    for (int i = 0; i < 3 * kRounds; ++i) EXPECT_EQ(at(to.data(), i), i);
    EXPECT_TRUE(own.communicator->close().ok());
  });
}

TEST_F(CollectivesTest, TheyCanBeSwitchedOff) {
  const auto library = open_collectives("emulated").value();
  const CommunicatorId id = library->create_id().value();
  ::setenv("MERON_EMULATED_DEVICE", "collectives=0", 1);
  const auto none = library->create_id();
  EXPECT_EQ(none.error().code(), MERON_E_UNSUPPORTED);
  EXPECT_THAT(none.error().info().what, HasSubstr("switched off by MERON_EMULATED_DEVICE"));
  EXPECT_EQ(library->begin(id, 1, 0, 0, 1s).error().code(), MERON_E_UNSUPPORTED);
}

TEST_F(CollectivesTest, NoDescriptorStaysOpen) {
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

TEST_F(CollectivesTest, PiecesAndStreamsThatCannotBeAreNamed) {
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

TEST_F(CollectivesTest, ABrokenDeviceEndsTheCollectivesOfAll) {
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
