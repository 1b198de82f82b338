// SPDX-License-Identifier: Apache-2.0
// The lock's token, its recesses, and the turn to begin something.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/held.h"
#include "engine/releases.h"
#include "engine/turn.h"

namespace meron {
namespace {

class Lock final : public Held {
 public:
  explicit Lock(Mutex& mutex) : Held(mutex) {}
  ~Lock() override { leave(); }
};

class LockIfFree final : public Held {
 public:
  explicit LockIfFree(Mutex& mutex) : Held(mutex, IfFree{}) {}
  using Held::taken;
};

bool is_free(Held::Mutex& mutex) {
  bool free = false;
  std::thread([&] { free = LockIfFree(mutex).taken(); }).join();
  return free;
}

TEST(HeldTest, ARecessLetsOthersIn) {
  Held::Mutex mutex;
  EXPECT_EQ(nullptr, Held::here());
  {
    Lock held(mutex);
    EXPECT_EQ(&held, Held::here());
    EXPECT_FALSE(is_free(mutex));
    {
      const Recess recess;
      EXPECT_EQ(nullptr, Held::here());
      EXPECT_TRUE(is_free(mutex));
      const Recess within;  // of nothing
    }
    EXPECT_EQ(&held, Held::here());
    const Recess unwanted(false);
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
  const Recess without_a_lock;
}

TEST(HeldTest, WhatIsDueRunsWithoutTheLock) {
  Held::Mutex mutex;
  std::vector<bool> free;
  const auto note = [&] { free.push_back(Held::here() == nullptr && is_free(mutex)); };
  {
    Lock held(mutex);
    held.later(note);
    EXPECT_TRUE(free.empty());
    {
      const Recess recess;
      EXPECT_EQ(1u, free.size());
    }
    Held::here()->later(note);
  }
  EXPECT_EQ((std::vector<bool>{true, true}), free);
}

TEST(HeldTest, WhoOnlyTriesLeavesWhatIsDueToTheNext) {
  Held::Mutex mutex;
  int ran = 0;
  {
    LockIfFree held(mutex);
    ASSERT_TRUE(held.taken());
    held.later([&] { ++ran; });
    EXPECT_FALSE(LockIfFree(mutex).taken());
  }
  EXPECT_EQ(0, ran);
  { Lock held(mutex); }
  EXPECT_EQ(1, ran);
}

#ifdef MERON_LOCK_CHECKS
TEST(HeldDeathTest, AWaitUnderTheLockEndsTheProcess) {
  Held::Mutex mutex;
  Lock held(mutex);
  EXPECT_DEATH(expect_unheld("a sleep"), "a sleep under a context's lock");
  EXPECT_DEATH(Lock again(mutex), "taking a context's lock");
  const Recess recess;
  expect_unheld("a sleep");
}
#endif

TEST(TurnTest, OneThreadHasItAndOthersWaitForABound) {
  TurnGate gate;
  ASSERT_TRUE(gate.take_if_free());
  {
    const Turn turn(gate);
    EXPECT_TRUE(gate.mine());
    EXPECT_FALSE(gate.take_if_free());
    std::thread([&] {
      EXPECT_FALSE(gate.mine());
      EXPECT_FALSE(gate.take(kNanosPerMilli));
    }).join();
  }
  EXPECT_FALSE(gate.mine());
  EXPECT_TRUE(gate.take(kNanosPerSecond));
  gate.give_back();
}

TEST(TurnTest, EveryThreadGetsIt) {
  TurnGate gate;
  int inside = 0;  // guarded by the turn
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(gate.take(60 * kNanosPerSecond));
        const Turn turn(gate);
        ++inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(800, inside);
}

TEST(ReleasesTest, AreTakenOnce) {
  Releases releases;
  int released = 0;
  EXPECT_FALSE(releases.some());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) releases.add([&] { ++released; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(releases.some());
  for (Release& release : releases.take()) release();
  EXPECT_EQ(200, released);
  EXPECT_FALSE(releases.some());
  EXPECT_TRUE(releases.take().empty());
}

}  // namespace
}  // namespace meron
