// SPDX-License-Identifier: Apache-2.0
// The engine's requirements of collectives between devices, tested on emulated ones: the bytes of
// each rank, and the order on streams. Failures are in collective_failures_test.cpp.
#include "collective_ranks.h"

namespace meron {
namespace {

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

// Without a wait of the host: the work before and after a launch on the stream is ordered.
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

// A launch waits for earlier ones, on any stream.
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

}  // namespace
}  // namespace meron
