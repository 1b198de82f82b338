// SPDX-License-Identifier: Apache-2.0
#include "os/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <system_error>
#include <thread>
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

// A limit on processes or memory.
TEST(ThreadPoolTest, PartsOfThreadsThatTheSystemRefusesAreDoneByTheCaller) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more than any limit on memory allows";
#endif
  constexpr int kThreads = 8;
  const pid_t child = fork();
  if (child == 0) {
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    pthread_attr_t attributes;
    size_t stack = 0;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &stack);
    const uint64_t bytes = pages * static_cast<uint64_t>(getpagesize()) + stack * 5 / 2;
    const rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
    ThreadPool pool(kThreads);
    for (int round = 0; round < 3; ++round) {
      std::array<std::atomic<int>, kThreads> seen{};
      pool.run(kThreads, [&](int part) { ++seen[static_cast<size_t>(part)]; });
      for (const auto& count : seen) {
        if (count.load() != 1) _exit(1);
      }
    }
    std::thread one_more;
    try {
      one_more = std::thread([] {});
    } catch (const std::system_error&) {
      _exit(0);
    }
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_NE(2, WEXITSTATUS(status)) << "the limit refused no thread";
  EXPECT_EQ(0, WEXITSTATUS(status));
}

}  // namespace
}  // namespace meron
