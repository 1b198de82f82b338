// SPDX-License-Identifier: Apache-2.0
#include "memory/window.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "memory/sanitizer.h"
#include "os/host.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

constexpr uint64_t kWindowMiB = 1 << 20;

std::shared_ptr<Window> make_window(uint64_t bytes = 64 * kWindowMiB) {
  return std::move(Window::create(bytes)).value();
}

bool all_are(const std::byte* data, size_t bytes, int value) {
  return std::all_of(data, data + bytes, [=](std::byte b) { return b == std::byte(value); });
}

TEST(Window, ReadersSeeWhatOwnersWrite) {
  const auto window = make_window();
  ASSERT_TRUE(window->reserve(100, 1000).ok());
  std::memset(window->writable(100), 0x42, 1000);
  window->prefault(100, 1000);
  EXPECT_TRUE(all_are(window->readable(100), 1000, 0x42));
  EXPECT_EQ(window->readable(0) == window->writable(0), kThreadSanitizer);
  EXPECT_EQ(window->allocated_bytes(), page_size());
}

TEST(Window, DefaultsToTheHostsMemoryAndTakesNone) {
  const auto window = make_window(0);
  EXPECT_EQ(window->size(), host_memory().total);
  EXPECT_EQ(window->allocated_bytes(), 0u);
}

TEST(Window, AWriteThroughAViewFaults) {
  if (kThreadSanitizer) GTEST_SKIP() << "under ThreadSanitizer views are writable";
  const auto window = make_window();
  ASSERT_TRUE(window->reserve(0, 1).ok());
  EXPECT_EQ(test::run_in_child([&] {
              ::signal(SIGSEGV, SIG_DFL);
              const_cast<volatile std::byte*>(window->readable(0))[0] = std::byte{1};
              return 0;
            }),
            1000 + SIGSEGV);
}

TEST(Window, NeighboursReserveAtTheSameTimeWithoutLosingBytes) {
  // Ranges that share pages and huge pages at both ends, reserved and written by all at once.
  constexpr int kRanks = 4;
  constexpr uint64_t kRange = 3 * kWindowMiB + 123;
  for (int round = 0; round < 10; ++round) {
    const auto window = make_window();
    std::atomic<int> ready{0};
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        ready.fetch_add(1);
        while (ready.load() < kRanks) std::this_thread::yield();
        const uint64_t begin = static_cast<uint64_t>(rank) * kRange;
        EXPECT_TRUE(window->reserve(begin, kRange).ok());
        std::memset(window->writable(begin), rank + 1, kRange);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (int rank = 0; rank < kRanks; ++rank) {
      const uint64_t begin = static_cast<uint64_t>(rank) * kRange;
      ASSERT_TRUE(all_are(window->readable(begin), kRange, rank + 1)) << rank;
    }
  }
}

TEST(Window, ProcessesShareIt) {
  const auto window = make_window();
  ASSERT_TRUE(window->reserve(0, 1000).ok());
  std::memset(window->writable(0), 1, 1000);
  EXPECT_EQ(test::run_in_child([&] {
              auto mine = Window::attach(UniqueFd(::dup(window->fd())));
              CHILD_EXPECT(mine.ok() && (*mine)->size() == window->size());
              CHILD_EXPECT(all_are((*mine)->readable(0), 1000, 1));
              CHILD_EXPECT((*mine)->reserve(1000, 2 * kWindowMiB).ok());
              std::memset((*mine)->writable(1000), 2, 2 * kWindowMiB);
              return 0;
            }),
            0);
  EXPECT_TRUE(all_are(window->readable(0), 1000, 1));
  EXPECT_TRUE(all_are(window->readable(1000), 2 * kWindowMiB, 2));
}

TEST(Window, DiscardSparesPagesThatNeighboursShare) {
  const auto window = make_window();
  const uint64_t page = page_size();
  ASSERT_TRUE(window->reserve(0, 4 * page).ok());
  std::memset(window->writable(0), 7, 4 * page);
  ASSERT_TRUE(window->discard(page / 2, 3 * page).ok());
  EXPECT_EQ(window->allocated_bytes(), 2 * page);
  EXPECT_TRUE(all_are(window->readable(0), page, 7));
  EXPECT_TRUE(all_are(window->readable(page), 2 * page, 0));
  EXPECT_TRUE(all_are(window->readable(3 * page), page, 7));
}

TEST(Window, RefusesBadRangesAndStrangeDescriptors) {
  const auto window = make_window(kWindowMiB);
  EXPECT_EQ(window->reserve(0, kWindowMiB + 1).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(window->reserve(UINT64_MAX, 2).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(window->discard(kWindowMiB, 1).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(Window::attach(UniqueFd()).error().code(), MERON_E_AUTH);
  EXPECT_EQ(Window::attach(UniqueFd(::memfd_create("bare", 0))).error().code(), MERON_E_AUTH);
}

TEST(Window, AForkedChildReadsButDestroysNothing) {
  const auto window = make_window();
  ASSERT_TRUE(window->reserve(0, kWindowMiB).ok());
  std::memset(window->writable(0), 9, kWindowMiB);
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(all_are(window->readable(0), kWindowMiB, 9));
              CHILD_EXPECT(window->reserve(kWindowMiB, 1).error().code() == MERON_E_FORKED);
              CHILD_EXPECT(window->discard(0, kWindowMiB).error().code() == MERON_E_FORKED);
              return 0;
            }),
            0);
  EXPECT_TRUE(all_are(window->readable(0), kWindowMiB, 9));
}

}  // namespace
}  // namespace meron
