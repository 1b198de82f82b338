// SPDX-License-Identifier: Apache-2.0
#include "os/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "os/fork_guard.h"

namespace meron {
namespace {

TEST(ThreadPoolTest, CoversEveryElementOnceAtMultiplesOfTheGrain) {
  ThreadPool pool(3);
  for (const uint64_t size : {0u, 1u, 255u, 256u, 257u, 5000u}) {
    std::vector<std::atomic<int>> seen(size);
    const int parts = pool.for_range(1000, 1000 + size, 256, 0, [&](int, uint64_t a, uint64_t b) {
      EXPECT_EQ(0u, (a - 1000) % 256);
      for (uint64_t i = a; i < b; ++i) ++seen[i - 1000];
    });
    EXPECT_LE(parts, 3);
    for (const auto& count : seen) ASSERT_EQ(1, count.load());
  }
}

TEST(ThreadPoolTest, StaysOnTheCallerWhereWakingDoesNotPay) {
  ThreadPool pool(4);
  const auto caller = std::this_thread::get_id();
  const int parts = pool.for_range(0, 100, 1, 101, [&](int part, uint64_t a, uint64_t b) {
    EXPECT_EQ(caller, std::this_thread::get_id());
    EXPECT_EQ(0, part);
    EXPECT_EQ(0u, a);
    EXPECT_EQ(100u, b);
  });
  EXPECT_EQ(1, parts);
}

TEST(ThreadPoolTest, ManyRunsInARow) {
  ThreadPool pool(4);
  std::atomic<int> total{0};
  for (int i = 0; i < 2000; ++i) pool.run(4, [&](int part) { total += part; });
  EXPECT_EQ(2000 * 6, total.load());
}

TEST(ForkGuardTest, KnowsTheChild) {
  EXPECT_FALSE(is_forked_child());
  const pid_t child = fork();
  if (child == 0) _exit(is_forked_child() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  EXPECT_FALSE(is_forked_child());
}

}  // namespace
}  // namespace meron
