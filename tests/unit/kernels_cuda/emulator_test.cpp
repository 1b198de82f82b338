// SPDX-License-Identifier: Apache-2.0
// The emulator finds what a device would do wrong.
#include "emulator.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/simt.h"

namespace meron::cuda {
namespace {

TEST(Emulator, ThreadsOfABlockMeet) {
  unsigned shared[kThreads];
  std::vector<unsigned> out(3 * kThreads);
  for (int launch = 0; launch < 3; ++launch) {
    EXPECT_EQ(emulator::run(3, kThreads,
                            [&] {
                              shared[thread_index()] = thread_index() + block_index();
                              sync_block();
                              out[block_index() * kThreads + thread_index()] =
                                  shared[kThreads - 1 - thread_index()];
                              sync_block();
                            }),
              "");
    for (unsigned i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], kThreads - 1 - i % kThreads + i / kThreads);
    }
  }
}

TEST(Emulator, AMissingBarrierIsAWrongResult) {
  unsigned wrong = 0;
  for (int launch = 0; launch < 3; ++launch) {
    unsigned shared[kThreads] = {};
    EXPECT_EQ(emulator::run(1, kThreads,
                            [&] {
                              shared[thread_index()] = 1;
                              wrong += shared[thread_index() ^ 32] != 1;
                            }),
              "");
    EXPECT_GT(wrong, 0u);
  }
}

TEST(Emulator, LanesExchange) {
  EXPECT_EQ(emulator::run(1, 64,
                          [&] {
                            const unsigned lane = thread_index() % kLanes;
                            EXPECT_EQ(shuffle_xor(lane, 5), lane ^ 5);
                            EXPECT_EQ(shuffle_xor(static_cast<double>(lane), 16), lane ^ 16);
                            EXPECT_EQ(max_of_warp(thread_index()), thread_index() | 31);
                          }),
            "");
}

TEST(Emulator, AMeetingThatLanesMissIsAnError) {
  EXPECT_EQ(emulator::run(1, 64,
                          [] {
                            if (thread_index() != 40) shuffle_xor(1, 1);
                          }),
            "not all lanes of a warp came to a meeting");
  EXPECT_EQ(emulator::run(1, 32,
                          [] {
                            if (thread_index() < 16) sync_block();
                            shuffle_xor(1, 1);
                          }),
            "not all lanes of a warp came to a meeting");
  EXPECT_NE(emulator::run(1, 32, [] { shuffle_xor(1, thread_index() == 3 ? 1 : 2); })
                .find("different meetings"),
            std::string::npos);
  EXPECT_EQ(emulator::run(1, 32, [] { shuffle_xor(1, 1); }), "") << "it goes on after a failure";
}

TEST(Emulator, WordsAreAligned) {
  alignas(16) unsigned char bytes[32] = {};
  EXPECT_EQ(emulator::run(1, 1, [&] { load_once<uint4>(bytes); }), "");
  EXPECT_NE(emulator::run(1, 1, [&] { load_once<uint4>(bytes + 8); }).find("not aligned"),
            std::string::npos);
}

}  // namespace
}  // namespace meron::cuda
