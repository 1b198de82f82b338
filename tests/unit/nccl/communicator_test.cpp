// SPDX-License-Identifier: Apache-2.0
// Communicators of the module over the fake library: that calls wait until NCCL is no longer in
// progress, that errors are NCCL's words, and that whatever hangs can be aborted.
#include <atomic>

#include "fake.h"
#include "modules/nccl/nccl_abi.h"

namespace meron {
namespace {

using testing::HasSubstr;

class NcclTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ::setenv("MERON_NCCL_LIBRARY", FAKE_NCCL, 1); }
  void SetUp() override { fake.set("reset", 0); }
  // Every communicator was destroyed or aborted, once.
  void TearDown() override {
    EXPECT_EQ(fake.alive(), 0);
    EXPECT_EQ(fake.allocated(), 0);
  }

  const LoadedCopy fake{FAKE_NCCL};
};

TEST_F(NcclTest, AnAllGatherInAndOutOfPlace) {
  run_ranks(4, [](DeviceCommunicator& own) {
    const int me = own.rank();
    std::vector<int> place(4, -1), to(4, -1);
    place[me] = me + 10;
    const int from = me + 20;
    ASSERT_TRUE(own.all_gather(&place[me], place.data(), sizeof(int), nullptr).ok());
    ASSERT_TRUE(own.all_gather(&from, to.data(), sizeof(int), nullptr).ok());
    ASSERT_TRUE(own.all_gather(nullptr, nullptr, 0, nullptr).ok());
    EXPECT_THAT(place, testing::ElementsAre(10, 11, 12, 13));
    EXPECT_THAT(to, testing::ElementsAre(20, 21, 22, 23));
    EXPECT_TRUE(own.close().ok());
  });
}

TEST_F(NcclTest, AnExchangeOfUnevenPieces) {
  run_ranks(3, [](DeviceCommunicator& own) {
    const int me = own.rank();
    const std::vector<char> out(16, static_cast<char>('a' + me));
    std::vector<std::vector<char>> in(3, std::vector<char>(16, '-'));
    std::vector<meron_exchange_piece> pieces;
    for (int peer = 0; peer < 3; ++peer) {
      // Rank r sends 3 r + p bytes to rank p: none from 0 to 0.
      meron_exchange_piece piece{};
      piece.peer = peer;
      piece.send = out.data();
      piece.send_bytes = static_cast<uint64_t>(3 * me + peer);
      piece.receive = in[peer].data();
      piece.receive_bytes = static_cast<uint64_t>(3 * peer + me);
      pieces.push_back(piece);
    }
    ASSERT_TRUE(own.exchange(pieces, nullptr).ok());
    for (int peer = 0; peer < 3; ++peer) {
      const auto bytes = static_cast<size_t>(3 * peer + me);
      EXPECT_EQ(std::string(in[peer].data(), 16),
                std::string(bytes, static_cast<char>('a' + peer)) + std::string(16 - bytes, '-'));
    }
    EXPECT_TRUE(own.close().ok());
  });
}

TEST_F(NcclTest, AGroupIsOneLaunchAndRefusesOtherStreams) {
  run_ranks(2, [](DeviceCommunicator& own) {
    const int me = own.rank();
    const std::vector<int> from{me + 1, me + 3};
    std::vector<int> one(2), two(2);
    int stream = 0;
    EXPECT_EQ(own.end_group().error().code(), MERON_E_STATE);
    ASSERT_TRUE(own.begin_group().ok());
    EXPECT_EQ(own.begin_group().error().code(), MERON_E_STATE);
    EXPECT_EQ(own.register_memory(&stream, 4).error().code(), MERON_E_STATE);
    ASSERT_TRUE(own.all_gather(&from[0], one.data(), sizeof(int), &stream).ok());
    EXPECT_EQ(own.all_gather(&from[0], one.data(), 4, nullptr).error().code(), MERON_E_ARGUMENT);
    ASSERT_TRUE(own.all_gather(&from[1], two.data(), sizeof(int), &stream).ok());
    EXPECT_EQ(one[1 - me], 0);  // nothing is launched yet
    ASSERT_TRUE(own.end_group().ok());
    EXPECT_THAT(one, testing::ElementsAre(1, 2));
    EXPECT_THAT(two, testing::ElementsAre(3, 4));
    ASSERT_TRUE(own.begin_group().ok());
    ASSERT_TRUE(own.end_group().ok());
    EXPECT_TRUE(own.close().ok());
  });
}

TEST_F(NcclTest, ALaunchThatStaysInProgressRunsIntoTheDeadline) {
  run_ranks(
      2,
      [](DeviceCommunicator& own) {
        int values[2] = {};
        if (own.rank() == 0) return std::this_thread::sleep_for(100ms);
        const Status failed = own.all_gather(&values[1], values, 4, nullptr);
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.error().code(), MERON_E_TIMEOUT);
        EXPECT_THAT(failed.error().info().what, HasSubstr("rank 1 of 2"));
        EXPECT_THAT(failed.error().info().what, HasSubstr("50 ms"));
        EXPECT_EQ(own.ready().error().code(), MERON_E_TIMEOUT);  // it stays so
        EXPECT_EQ(own.all_gather(values, values, 0, nullptr).error().code(), MERON_E_TIMEOUT);
        EXPECT_EQ(own.close().error().code(), MERON_E_TIMEOUT);
        EXPECT_EQ(own.ready().error().code(), MERON_E_CLOSED);
      },
      50ms);
}

TEST_F(NcclTest, AnAbortByAnotherThreadEndsALaunch) {
  run_ranks(2, [](DeviceCommunicator& own) {
    int values[2] = {};
    if (own.rank() == 0) return;  // never comes; its destruction aborts it
    std::thread watchdog([&] {
      std::this_thread::sleep_for(20ms);
      EXPECT_TRUE(*own.ready());
      EXPECT_TRUE(own.abort().ok());
      EXPECT_TRUE(own.abort().ok());
    });
    const Status ended = own.all_gather(&values[1], values, 4, nullptr);
    EXPECT_EQ(ended.error().code(), MERON_E_ABORTED);
    watchdog.join();
    EXPECT_EQ(own.ready().error().code(), MERON_E_ABORTED);
    EXPECT_EQ(own.begin_group().error().code(), MERON_E_ABORTED);
    EXPECT_TRUE(own.close().ok());
  });
}

// NCCL frees memory in an abort, which waits for kernels of the device's other communicators.
TEST_F(NcclTest, CommunicatorsOfADeviceAbortTogether) {
  fake.set("abort_waits", 1);
  const auto library = open_collectives("nccl").value();
  const CommunicatorId second = library->create_id().value();
  std::atomic<bool> over{false};
  run_ranks(2, [&](DeviceCommunicator& own) {
    const std::vector<std::shared_ptr<DeviceCommunicator>> both = {
        own.shared_from_this(), library->begin(second, 2, own.rank(), -1, 20s).value()};
    ASSERT_TRUE(wait_ready(*both[1]).ok());
    if (own.rank() == 1) {  // it never launches, and closes last
      while (!over) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(DeviceCommunicator::abort(both).ok());
      return;
    }
    std::vector<std::thread> launches;
    for (const auto& each : both) {
      launches.emplace_back([each] {
        int values[2] = {};
        EXPECT_EQ(each->all_gather(&values[0], values, 4, nullptr).error().code(), MERON_E_ABORTED);
      });
    }
    std::this_thread::sleep_for(20ms);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(DeviceCommunicator::abort(both).ok());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
    EXPECT_TRUE(DeviceCommunicator::abort(both).ok());
    for (std::thread& launch : launches) launch.join();
    for (const auto& each : both) EXPECT_TRUE(each->close().ok());
    over = true;
  });
}

TEST_F(NcclTest, AnAbortThatHangsHasADeadline) {
  run_ranks(1, [this](DeviceCommunicator& own) {
    fake.set("hang_abort", 1);
    std::thread abort([&] {
      const Status hung = own.abort();
      ASSERT_FALSE(hung.ok());
      EXPECT_EQ(hung.error().code(), MERON_E_TIMEOUT);
      EXPECT_THAT(hung.error().info().what, HasSubstr("1 communicators within 5 s"));
    });
    std::this_thread::sleep_for(50ms);
    // Neither this nor the lock of whoever asks is held up.
    EXPECT_EQ(own.ready().error().code(), MERON_E_ABORTED);
    abort.join();
    fake.set("reset", 0);
    EXPECT_TRUE(own.close().ok());
    while (fake.alive() > 0) std::this_thread::sleep_for(1ms);
  });
}

TEST_F(NcclTest, AnAbortWithinAGroupLeavesNoneOpen) {
  run_ranks(1, [](DeviceCommunicator& own) {
    int value = 1, to = 0;
    ASSERT_TRUE(own.begin_group().ok());
    ASSERT_TRUE(own.all_gather(&value, &to, 4, nullptr).ok());
    ASSERT_TRUE(own.abort().ok());
    EXPECT_EQ(own.end_group().error().code(), MERON_E_ABORTED);
  });
  run_ranks(1, [](DeviceCommunicator& own) {  // in the same thread or not: a new one works
    int value = 1, to = 0;
    ASSERT_TRUE(own.all_gather(&value, &to, 4, nullptr).ok());
    EXPECT_EQ(to, 1);
    EXPECT_TRUE(own.close().ok());
  });
}

TEST_F(NcclTest, AnErrorThatComesByItselfIsToldByPoll) {
  run_ranks(1, [this](DeviceCommunicator& own) {
    fake.set("fail_later", 6);
    const auto state = own.ready();
    ASSERT_FALSE(state.ok());
    EXPECT_EQ(state.error().code(), MERON_E_PEER_DEAD);
    EXPECT_THAT(state.error().info().what, HasSubstr("remote process exited"));
    EXPECT_THAT(state.error().info().what, HasSubstr("fake: the socket was closed"));
    fake.set("reset", 0);
    EXPECT_EQ(own.ready().error().code(), MERON_E_PEER_DEAD);
    EXPECT_EQ(own.close().error().code(), MERON_E_PEER_DEAD);
  });
}

TEST_F(NcclTest, ALaunchThatFailsIsTold) {
  run_ranks(1, [this](DeviceCommunicator& own) {
    int value = 1, to = 0;
    fake.set("fail_launch", 2);
    const Status failed = own.all_gather(&value, &to, 4, nullptr);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), MERON_E_IO);
    EXPECT_THAT(failed.error().info().what, HasSubstr("unhandled system error"));
    EXPECT_THAT(failed.error().info().what, HasSubstr("fake: the launch failed"));
  });
}

TEST_F(NcclTest, WithoutADeviceTheWordsAreNccls) {
  fake.set("fail_open", 1);
  const auto library = open_collectives("nccl").value();
  const auto begun = library->begin(library->create_id().value(), 1, 0, -1, 1s);
  ASSERT_FALSE(begun.ok());
  EXPECT_THAT(begun.error().info().what, HasSubstr("no CUDA-capable device"));
}

TEST_F(NcclTest, RanksThatShareAGpuAreTold) {
  fake.set("fail_opening", 5);
  const auto library = open_collectives("nccl").value();
  const auto begun = library->begin(library->create_id().value(), 1, 0, -1, 1s);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ((*begun)->begin_group().error().code(), MERON_E_STATE);
  const Status ready = wait_ready(**begun);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code(), MERON_E_UNSUPPORTED);
  EXPECT_THAT(ready.error().info().what, HasSubstr("use one GPU"));
  EXPECT_THAT(ready.error().info().what, HasSubstr("Duplicate GPU detected"));
}

TEST_F(NcclTest, APeerThatNeverComesIsNotWaitedForByOpenOrPoll) {
  const auto library = open_collectives("nccl").value();
  const auto begun = library->begin(library->create_id().value(), 2, 0, -1, 1h);
  ASSERT_TRUE(begun.ok());
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(*(*begun)->ready());
  const Status early = (*begun)->all_gather(nullptr, nullptr, 0, nullptr);
  EXPECT_EQ(early.error().code(), MERON_E_STATE);
  EXPECT_THAT(early.error().info().what, HasSubstr("not all ranks have come"));
  EXPECT_TRUE((*begun)->abort().ok());
  EXPECT_EQ((*begun)->ready().error().code(), MERON_E_ABORTED);
}

TEST_F(NcclTest, AFinalizeThatHangsIsAborted) {
  fake.set("hang_finalize", 1);
  run_ranks(
      1,
      [](DeviceCommunicator& own) {
        const Status closed = own.close();
        EXPECT_EQ(closed.error().code(), MERON_E_TIMEOUT);
        EXPECT_THAT(closed.error().info().what, HasSubstr("ncclCommFinalize"));
      },
      30ms);
}

TEST_F(NcclTest, MemoryIsRegisteredWhereNcclDoesIt) {
  run_ranks(1, [this](DeviceCommunicator& own) {
    int value = 0;
    {
      const auto registration = own.register_memory(&value, 4);
      ASSERT_TRUE(registration.ok());
      EXPECT_EQ(fake.registered(), 1);
    }
    EXPECT_EQ(fake.registered(), 0);
    fake.set("no_register", 1);
    const auto refused = own.register_memory(&value, 4);
    EXPECT_EQ(refused.error().code(), MERON_E_UNSUPPORTED);
    EXPECT_THAT(refused.error().info().what, HasSubstr("NCCL_LOCAL_REGISTER"));
    EXPECT_TRUE(own.close().ok());
  });
}

TEST_F(NcclTest, GathersWithinWindowsAreAskedOfCopyEngines) {
  run_ranks(
      2,
      [this](DeviceCommunicator& own) {
        EXPECT_EQ(fake.policy(), nccl::kCopyEnginePolicy);
        auto window = own.open_window(4096);
        ASSERT_TRUE(window.ok()) << window.error().info().what;
        EXPECT_EQ(window->bytes(), 4096U);
        auto* const values = reinterpret_cast<int*>(window->data());
        values[own.rank()] = own.rank() + 5;
        ASSERT_TRUE(own.all_gather(&values[own.rank()], values, sizeof(int), nullptr).ok());
        EXPECT_EQ(values[0], 5);
        EXPECT_EQ(values[1], 6);
        window->reset();
        EXPECT_TRUE(own.close().ok());
      },
      20s, true);
  EXPECT_EQ(fake.windows(), 0);
  run_ranks(1, [this](DeviceCommunicator& own) {
    EXPECT_EQ(fake.policy(), nccl::kUndefined);
    EXPECT_TRUE(own.close().ok());
  });
}

TEST_F(NcclTest, AWindowGoesAlsoAfterItsCommunicator) {
  run_ranks(2, [](DeviceCommunicator& own) {
    auto window = own.open_window(64);
    ASSERT_TRUE(window.ok()) << window.error().info().what;
    if (own.rank() == 0) {
      EXPECT_TRUE(own.abort().ok());
    } else {
      EXPECT_TRUE(own.close().ok());
    }
  });
}

TEST_F(NcclTest, WindowsThatCannotBeOpenedSayWhy) {
  run_ranks(1, [this](DeviceCommunicator& own) {
    ASSERT_TRUE(own.begin_group().ok());
    EXPECT_EQ(own.open_window(64).error().code(), MERON_E_STATE);
    ASSERT_TRUE(own.end_group().ok());
    fake.set("no_memory", 1);
    const auto full = own.open_window(64);
    EXPECT_EQ(full.error().code(), MERON_E_NO_MEMORY);
    EXPECT_THAT(full.error().info().what, HasSubstr("64 bytes"));
    fake.set("reset", 0);
    fake.set("no_windows", 1);
    const auto none = own.open_window(64);
    EXPECT_EQ(none.error().code(), MERON_E_UNSUPPORTED);
    EXPECT_THAT(none.error().info().what, HasSubstr("NVLink"));
    EXPECT_TRUE(own.close().ok());
  });
}

TEST_F(NcclTest, NumbersThatCannotBeAreRefused) {
  const auto library = open_collectives("nccl").value();
  const CommunicatorId id = library->create_id().value();
  EXPECT_EQ(library->begin(id, 0, 0, -1, 1s).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(library->begin(id, 2, 2, -1, 1s).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(library->begin(id, 2, -1, -1, 1s).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(library->begin(id, 2, 0, -2, 1s).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(library->begin(id, 2, 0, -1, 0s).error().code(), MERON_E_ARGUMENT);
  run_ranks(1, [](DeviceCommunicator& own) {
    const meron_exchange_piece far{1, 0, nullptr, 0, nullptr, 0};
    char bytes[8] = {};
    const meron_exchange_piece uneven{0, 0, bytes, 8, bytes, 4};
    const meron_exchange_piece empty{0, 0, nullptr, 8, bytes, 8};
    EXPECT_THAT(own.exchange({&empty, 1}, nullptr).error().info().what, HasSubstr("no pointer"));
    EXPECT_EQ(own.all_gather(bytes, nullptr, 8, nullptr).error().code(), MERON_E_ARGUMENT);
    EXPECT_THAT(own.exchange({&far, 1}, nullptr).error().info().what, HasSubstr("rank 1 of 1"));
    EXPECT_THAT(own.exchange({&uneven, 1}, nullptr).error().info().what, HasSubstr("piece 0"));
    EXPECT_TRUE(own.close().ok());
  });
}

// Ranks that do different things for a while, each closing or aborting as it likes.
TEST_F(NcclTest, ManyRanksManyRounds) {
  fake.set("in_progress", 2);
  run_ranks(4, [](DeviceCommunicator& own) {
    std::vector<int> values(4);
    for (int round = 0; round < 200; ++round) {
      const int from = 4 * round + own.rank();
      ASSERT_TRUE(own.all_gather(&from, values.data(), sizeof(int), nullptr).ok());
      for (int i = 0; i < 4; ++i) ASSERT_EQ(values[i], 4 * round + i);
    }
    EXPECT_TRUE(own.close().ok());
  });
}

}  // namespace
}  // namespace meron
