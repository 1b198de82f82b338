// SPDX-License-Identifier: Apache-2.0
// Collectives of the emulated device between processes of one host: bytes, and what is heard of a
// process that has gone.
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "collective_ranks.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kKilled = 1000 + SIGKILL;

// In a rank: what does not hold ends its process with the line's number.
#define RANK_EXPECT(condition)                                                                \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: in a rank: not so: %s\n", __FILE__, __LINE__, #condition); \
      ::_exit(__LINE__ % 199 + 1);                                                            \
    }                                                                                         \
  } while (0)

void be_rank(const CommunicatorId& id, int size, int rank,
             const std::function<void(TestRank&)>& body) {
  const auto library = open_collectives("emulated").value();
  TestRank own(*library, id, size, rank);
  const Status ready = wait_ready(*own.communicator);
  if (!ready.ok()) std::fprintf(stderr, "rank %d: %s\n", rank, ready.error().info().what.c_str());
  RANK_EXPECT(ready.ok());
  body(own);
}

// `body` as each rank, `threads` of them in a process. Processes of `killed` are expected to be.
void run_processes(int size, const std::function<void(TestRank&)>& body,
                   const std::set<int>& killed = {}, int threads = 1) {
  const CommunicatorId id = open_collectives("emulated").value()->create_id().value();
  std::vector<std::unique_ptr<test::Child>> processes;
  for (int first = 0; first < size; first += threads) {
    processes.push_back(std::make_unique<test::Child>([&] {
      run_threads(threads, [&](int rank) { be_rank(id, size, first + rank, body); });
      return testing::Test::HasFailure() ? 1 : 0;
    }));
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    EXPECT_EQ(processes[i]->wait(), killed.count(static_cast<int>(i)) != 0 ? kKilled : 0)
        << "process " << i;
  }
}

// No rank continues before all have seen that it is ready, and have arrived here.
void meet(const TestRank& own) {
  RANK_EXPECT(own.communicator->all_gather(nullptr, nullptr, 0, own.stream.get()).ok());
  own.synchronize();
}

class CollectiveProcessesTest : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("MERON_EMULATED_DEVICE"); }
};

// Another byte at every place, of every rank, and in every round.
std::byte byte_of(int seed, uint64_t index) {
  return static_cast<std::byte>(
      ((static_cast<uint64_t>(seed) + 1) * 0x9e3779b97f4a7c15 + index * 0xd1b54a32d192ed03) >> 56);
}

void write(std::byte* data, int seed, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) data[i] = byte_of(seed, i);
}

bool is_written(const std::byte* data, int seed, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (data[i] != byte_of(seed, i)) return false;
  }
  return true;
}

// Everything at once, again and again: gathers and uneven pieces in one launch.
void exchange_rounds(TestRank& own, int rounds) {
  const int me = own.rank(), size = own.size();
  const auto bytes = [](int from, int to) {
    return static_cast<uint64_t>(from == to + 1 ? 0 : 1000 * from + 77 * to + 1);
  };
  constexpr uint64_t kGather = 3001, kSpace = 16384;
  const auto n = static_cast<uint64_t>(size);
  const DeviceMemory from = own.memory(kGather), to = own.memory(n * kGather);
  const DeviceMemory out = own.memory(n * kSpace), in = own.memory(n * kSpace);
  for (int round = 0; round < rounds; ++round) {
    write(from.data(), 100 * round + me, kGather);
    std::vector<meron_exchange_piece> pieces;
    for (int peer = 0; peer < size; ++peer) {
      std::byte* const sent = out.data() + kSpace * peer;
      write(sent, 100 * round + 10 * me + peer + 1000, bytes(me, peer));
      pieces.push_back(
          {peer, 0, sent, bytes(me, peer), in.data() + kSpace * peer, bytes(peer, me)});
    }
    RANK_EXPECT(own.communicator->begin_group().ok());
    RANK_EXPECT(
        own.communicator->all_gather(from.data(), to.data(), kGather, own.stream.get()).ok());
    RANK_EXPECT(own.communicator->exchange(pieces, own.stream.get()).ok());
    RANK_EXPECT(own.communicator->end_group().ok());
    RANK_EXPECT(own.device->synchronize(own.stream.get()).ok());
    RANK_EXPECT(own.is_ready());
    for (int peer = 0; peer < size; ++peer) {
      RANK_EXPECT(is_written(to.data() + kGather * peer, 100 * round + peer, kGather));
      RANK_EXPECT(is_written(in.data() + kSpace * peer, 100 * round + 10 * peer + me + 1000,
                             bytes(peer, me)));
    }
  }
  RANK_EXPECT(own.communicator->close().ok());
}

TEST_F(CollectiveProcessesTest, ThreeHaveTheBytesOfAll) {
  run_processes(3, [](TestRank& own) { exchange_rounds(own, 10); });
}

TEST_F(CollectiveProcessesTest, EightHaveTheBytesOfAll) {
  run_processes(8, [](TestRank& own) { exchange_rounds(own, 3); });
}

TEST_F(CollectiveProcessesTest, ProcessesOfTwoRanksEach) {
  run_processes(
      4, [](TestRank& own) { exchange_rounds(own, 5); }, {}, 2);
}

// More than fits into any buffer, both ways at once.
TEST_F(CollectiveProcessesTest, LargeMessagesBothWays) {
  constexpr uint64_t kBytes = 64 << 20;
  run_processes(2, [](TestRank& own) {
    const DeviceMemory out = own.memory(kBytes), in = own.memory(kBytes);
    write(out.data(), own.rank(), kBytes);
    const int peer = 1 - own.rank();
    const std::array<meron_exchange_piece, 1> pieces{
        {{peer, 0, out.data(), kBytes, in.data(), kBytes}}};
    RANK_EXPECT(own.communicator->exchange(pieces, own.stream.get()).ok());
    own.fill(out.data(), 0, kBytes);  // behind it
    RANK_EXPECT(own.communicator->close().ok());
    RANK_EXPECT(own.device->synchronize(own.stream.get()).ok());
    RANK_EXPECT(is_written(in.data(), peer, kBytes));
  });
}

TEST_F(CollectiveProcessesTest, LaunchesWithoutBytes) {
  run_processes(3, [](TestRank& own) {
    void* const stream = own.stream.get();
    RANK_EXPECT(own.communicator->all_gather(nullptr, nullptr, 0, stream).ok());
    RANK_EXPECT(own.communicator->exchange({}, stream).ok());
    RANK_EXPECT(own.device->synchronize(stream).ok());
    RANK_EXPECT(own.communicator->close().ok());
  });
}

// A slower rank still reads the bytes of a rank that has ended.
TEST_F(CollectiveProcessesTest, OneThatIsDoneMayEndBeforeTheOthers) {
  constexpr uint64_t kBytes = 100000;
  for (int round = 0; round < 10; ++round) {
    run_processes(2, [](TestRank& own) {
      const DeviceMemory data = own.memory(kBytes);
      write(data.data(), own.rank(), kBytes);
      meron_exchange_piece piece{1 - own.rank(), 0, nullptr, 0, nullptr, 0};
      if (own.rank() == 0) {
        piece.send = data.data();
        piece.send_bytes = kBytes;
      } else {
        piece.receive = data.data();
        piece.receive_bytes = kBytes;
      }
      RANK_EXPECT(own.communicator->exchange({&piece, 1}, own.stream.get()).ok());
      RANK_EXPECT(own.communicator->close().ok());
      RANK_EXPECT(is_written(data.data(), 0, kBytes));
    });
  }
}

TEST_F(CollectiveProcessesTest, RanksThatAskForDifferentThingsAreTold) {
  run_processes(3, [](TestRank& own) {
    const DeviceMemory from = own.memory(64), to = own.memory(3 * 64);
    const uint64_t bytes = own.rank() == 2 ? 32 : 64;
    meet(own);
    // The last to ask may hear of it before.
    (void)own.communicator->all_gather(from.data(), to.data(), bytes, own.stream.get());
    own.synchronize();
    const auto failed = own.communicator->ready();
    RANK_EXPECT(!failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_MISMATCH);
    EXPECT_THAT(failed.error().info().what,
                testing::AllOf(testing::HasSubstr("launch 2"), testing::HasSubstr("64"),
                               testing::HasSubstr("32")));
  });
}

void expect_dead(const TestRank& own, const std::string& text) {
  const auto failed = own.communicator->ready();
  RANK_EXPECT(!failed.ok());
  EXPECT_EQ(failed.error().code(), MERON_E_PEER_DEAD);
  EXPECT_THAT(failed.error().info().what, testing::HasSubstr(text));
}

TEST_F(CollectiveProcessesTest, AProcessThatIsKilledInALaunchIsNamed) {
  constexpr uint64_t kBytes = 32 << 20;
  run_processes(3,
                [](TestRank& own) {
                  const DeviceMemory from = own.memory(kBytes), to = own.memory(3 * kBytes);
                  meet(own);
                  void* const stream = own.stream.get();
                  (void)own.communicator->all_gather(from.data(), to.data(), kBytes, stream);
                  if (own.rank() == 1) {
                    std::this_thread::sleep_for(2ms);
                    ::raise(SIGKILL);
                  }
                  const auto begin = Clock::now();
                  own.synchronize();
                  expect_dead(own, "the process of rank 1 has ended");
                  EXPECT_FALSE(own.communicator->close().ok());
                  EXPECT_LT(Clock::now() - begin, 5s);
                },
                {1});
}

TEST_F(CollectiveProcessesTest, AProcessThatIsKilledBetweenLaunchesIsNamed) {
  run_processes(
      3,
      [](TestRank& own) {
        meet(own);
        if (own.rank() == 1) {
          std::this_thread::sleep_for(10ms);
          ::raise(SIGKILL);
        }
        const auto begin = Clock::now();
        while (own.communicator->ready().ok() && Clock::now() - begin < 10s) {
          std::this_thread::sleep_for(1ms);
        }
        expect_dead(own, "the process of rank 1 has ended");
        EXPECT_EQ(
            own.communicator->all_gather(nullptr, nullptr, 0, own.stream.get()).error().code(),
            MERON_E_PEER_DEAD);
        EXPECT_LT(Clock::now() - begin, 5s);
      },
      {1});
}

// As over NVLink: a rank hears neither that a peer aborted nor that its process ended.
TEST_F(CollectiveProcessesTest, AloneARankWaitsUntilItAbortsItself) {
  ::setenv("MERON_EMULATED_DEVICE", "alone=1", 1);
  run_processes(
      3,
      [](TestRank& own) {
        const DeviceMemory from = own.memory(64), to = own.memory(3 * 64);
        meet(own);
        if (own.rank() == 1) ::raise(SIGKILL);
        if (own.rank() == 2) {
          EXPECT_TRUE(own.communicator->abort().ok());
          return;
        }
        RANK_EXPECT(
            own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get()).ok());
        std::this_thread::sleep_for(100ms);
        EXPECT_TRUE(own.is_ready());
        EXPECT_FALSE(*own.device->record(own.stream.get())->come());
        EXPECT_TRUE(own.communicator->abort().ok());
        own.synchronize();
        EXPECT_TRUE(own.communicator->close().ok());
      },
      {1});
}

TEST_F(CollectiveProcessesTest, AnAbortIsHeardByAll) {
  run_processes(3, [](TestRank& own) {
    meet(own);
    if (own.rank() == 2) {
      std::this_thread::sleep_for(20ms);
      RANK_EXPECT(own.communicator->abort().ok());
      return;
    }
    const DeviceMemory from = own.memory(64), to = own.memory(3 * 64);
    (void)own.communicator->all_gather(from.data(), to.data(), 64, own.stream.get());
    own.synchronize();
    const auto failed = own.communicator->ready();
    RANK_EXPECT(!failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_ABORTED);
    EXPECT_THAT(failed.error().info().what, testing::HasSubstr("rank 2 aborted it"));
  });
}

}  // namespace
}  // namespace meron
