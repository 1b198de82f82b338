// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/layout.h"
#include "memory/sanitizer.h"
#include "memory/window.h"
#include "os/host.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::shared_ptr<Arena> make_arena(uint64_t reserve = 1ull << 30, uint64_t limit = 0) {
  return std::move(Arena::create({.reserve = reserve, .limit = limit})).value();
}

Buffer take(Arena& arena, uint64_t bytes, MemoryKind kind = MemoryKind::param) {
  auto buffer = arena.allocate(bytes, kind, "test");
  EXPECT_TRUE(buffer.ok());
  return buffer.ok() ? *buffer : Buffer{};
}

bool all_are(const Buffer& buffer, int value) {
  return std::all_of(buffer.data, buffer.data + buffer.bytes,
                     [=](std::byte b) { return b == std::byte(value); });
}

// Distance between two addresses on a circle of `period` bytes.
uint64_t distance_modulo(uint64_t a, uint64_t b, uint64_t period) {
  const uint64_t ahead = (a - b) % period;
  return std::min(ahead, period - ahead);
}

TEST(Arena, ChargesTheFootprintAndTakesAsManyPages) {
  const auto arena = make_arena();
  EXPECT_EQ(arena->file().allocated_bytes(), 0u);
  uint64_t charged = 0;
  for (const uint64_t bytes : {uint64_t{1}, kPage, kPage + 1, kColorThreshold - 1, kColorThreshold,
                               kColorThreshold + 1, 40 * kMiB}) {
    const Buffer buffer = take(*arena, bytes);
    EXPECT_EQ(buffer.bytes, bytes);
    charged += footprint(bytes);
    EXPECT_EQ(arena->total_usage(), charged);
    EXPECT_EQ(arena->file().allocated_bytes(), round_up(charged, page_size()));
  }
}

TEST(Arena, ABufferGrowsWithinItsRoomAndIsChargedThen) {
  for (const uint64_t bytes : {uint64_t{100}, 3 * kPage, kColorThreshold - kPage, 20 * kMiB}) {
    const auto arena = make_arena();
    const Buffer buffer = arena->promise(bytes, MemoryKind::gradient, "test", 2 * bytes).value();
    EXPECT_EQ(arena->total_usage(), footprint(bytes));
    EXPECT_EQ(arena->extend(buffer, 2 * bytes, "test").error().code(), MERON_E_INTERNAL);
    ASSERT_TRUE(arena->provide(buffer, "test").ok());
    const Buffer next = take(*arena, kPage);
    std::memset(buffer.data, 7, bytes);
    EXPECT_EQ(arena->file().allocated_bytes(), footprint(bytes) + kPage);
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(arena->extend(buffer, 2 * bytes, "test").ok());
      EXPECT_EQ(arena->usage(MemoryKind::gradient), footprint(2 * bytes));
      EXPECT_EQ(arena->total_peak(), footprint(2 * bytes) + kPage);
      EXPECT_EQ(arena->file().allocated_bytes(), footprint(2 * bytes) + kPage);
    }
    EXPECT_TRUE(std::all_of(buffer.data, buffer.data + bytes,
                            [](std::byte b) { return b == std::byte{7}; }));
    EXPECT_TRUE(std::all_of(buffer.data + bytes, buffer.data + 2 * bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
    std::memset(buffer.data, 7, 2 * bytes);
    EXPECT_TRUE(all_are(next, 0));
    EXPECT_EQ(arena->extend(buffer, 4 * bytes + kPage, "test").error().code(), MERON_E_NO_MEMORY);
    arena->release(buffer);
    EXPECT_EQ(arena->usage(MemoryKind::gradient), 0u);
    EXPECT_EQ(arena->file().allocated_bytes(), kPage);
    EXPECT_TRUE(all_are(take(*arena, 2 * bytes), 0));
  }
}

TEST(Arena, RoomToGrowIsDroppedIfTheAddressSpaceLacksIt) {
  const auto arena = make_arena(64 * kMiB);
  arena->release(arena->promise(40 * kMiB, MemoryKind::gradient, "test", 80 * kMiB).value());
  const Buffer most = arena->promise(30 * kMiB, MemoryKind::gradient, "test", 60 * kMiB).value();
  const Buffer rest = arena->promise(1 * kMiB, MemoryKind::gradient, "test", 40 * kMiB).value();
  for (const Buffer& each : {most, rest}) ASSERT_TRUE(arena->provide(each, "test").ok());
  EXPECT_EQ(arena->extend(rest, 2 * kMiB, "what grows").error().code(), MERON_E_NO_MEMORY);
  EXPECT_TRUE(arena->extend(most, 60 * kMiB, "what grows").ok());
}

TEST(Arena, ABufferThatTheBudgetKeepsFromGrowingStaysAsItIs) {
  const auto arena = make_arena(1ull << 30, 3 * kPage);
  const Buffer buffer = arena->promise(2 * kPage, MemoryKind::gradient, "test", 4 * kPage).value();
  ASSERT_TRUE(arena->provide(buffer, "test").ok());
  EXPECT_EQ(arena->extend(buffer, 4 * kPage, "what grows").error().code(), MERON_E_NO_MEMORY);
  EXPECT_EQ(arena->total_usage(), 2 * kPage);
  ASSERT_TRUE(arena->extend(buffer, 3 * kPage, "what grows").ok());
  EXPECT_EQ(arena->total_usage(), 3 * kPage);
}

TEST(Arena, EmptyBuffersSucceedAndCostNothing) {
  const auto arena = make_arena();
  const Buffer a = take(*arena, 0);
  const Buffer b = take(*arena, 0);
  EXPECT_NE(a.data, nullptr);
  EXPECT_NE(a.data, b.data);
  EXPECT_EQ(a.bytes, 0u);
  EXPECT_EQ(arena->total_usage(), 0u);
  EXPECT_NE(take(*arena, 1).data, a.data);
  arena->release(a);
  arena->release(a);
  EXPECT_EQ(arena->total_usage(), kPage);
}

TEST(Arena, CountsPerKindAndKeepsPeaks) {
  const auto arena = make_arena();
  const Buffer p = take(*arena, 3 * kPage, MemoryKind::param);
  const Buffer g = take(*arena, 2 * kPage, MemoryKind::gradient);
  EXPECT_EQ(arena->usage(MemoryKind::param), 3 * kPage);
  EXPECT_EQ(arena->usage(MemoryKind::gradient), 2 * kPage);
  EXPECT_EQ(arena->usage(MemoryKind::optimizer), 0u);
  arena->release(p);
  EXPECT_EQ(arena->usage(MemoryKind::param), 0u);
  EXPECT_EQ(arena->peak(MemoryKind::param), 3 * kPage);
  const Buffer o = take(*arena, kPage, MemoryKind::optimizer);
  EXPECT_EQ(arena->total_usage(), 3 * kPage);
  EXPECT_EQ(arena->total_peak(), 5 * kPage);
  arena->release(g);
  arena->release(o);
  EXPECT_EQ(arena->total_usage(), 0u);
  EXPECT_EQ(arena->total_peak(), 5 * kPage);
  EXPECT_EQ(arena->file().allocated_bytes(), 0u);
}

TEST(Arena, PromisedMemoryCountsAtOnceAndTakesPagesWhenProvided) {
  const auto arena = make_arena();
  const Buffer old = take(*arena, 5 * kMiB);
  std::memset(old.data, 0xAB, old.bytes);
  arena->release(old);
  const auto promised = arena->promise(5 * kMiB, MemoryKind::gradient, "sum");
  ASSERT_TRUE(promised.ok());
  EXPECT_EQ(arena->usage(MemoryKind::gradient), footprint(5 * kMiB));
  EXPECT_EQ(arena->file().allocated_bytes(), 0u);
  ASSERT_TRUE(arena->provide(*promised, "sum").ok());
  EXPECT_EQ(arena->file().allocated_bytes(), footprint(5 * kMiB));
  EXPECT_TRUE(all_are(*promised, 0));
  std::memset(promised->data, 0x5A, promised->bytes);
  ASSERT_TRUE(arena->provide(*promised, "sum").ok());
  EXPECT_TRUE(all_are(*promised, 0x5A)) << "provided twice";
  EXPECT_EQ(arena->usage(MemoryKind::gradient), footprint(5 * kMiB));
  arena->release(*promised);
  EXPECT_TRUE(arena->provide(*promised, "sum").ok()) << "released: nothing to provide";
  EXPECT_EQ(arena->file().allocated_bytes(), 0u);
  EXPECT_EQ(arena->total_usage(), 0u);
  const auto empty = arena->promise(0, MemoryKind::gradient, "nothing");
  ASSERT_TRUE(empty.ok());
  EXPECT_NE(empty->data, nullptr);
  EXPECT_TRUE(arena->provide(*empty, "nothing").ok());
}

TEST(Arena, ReusedMemoryIsZero) {
  const auto arena = make_arena(64 * kMiB);
  for (const uint64_t bytes : {uint64_t{100}, kPage, 5 * kMiB, 20 * kMiB}) {
    const Buffer first = take(*arena, bytes);
    EXPECT_TRUE(all_are(first, 0));
    std::memset(first.data, 0xAB, first.bytes);
    arena->release(first);
    const Buffer second = take(*arena, bytes);
    // The same place or, of a large buffer, one color further.
    EXPECT_LE(distance_modulo(second.offset, first.offset, UINT64_MAX), kColorStep);
    EXPECT_TRUE(all_are(second, 0)) << bytes;
    arena->release(second);
  }
}

TEST(Arena, ReleasingTwiceHarmsNobody) {
  const auto arena = make_arena();
  const Buffer first = take(*arena, kPage);
  arena->release(first);
  const Buffer second = take(*arena, kPage);
  ASSERT_EQ(second.offset, first.offset);
  std::memset(second.data, 0x5A, second.bytes);
  arena->release(first);
  arena->release(Buffer{});
  EXPECT_TRUE(all_are(second, 0x5A));
  EXPECT_EQ(arena->total_usage(), kPage);
}

TEST(Arena, SmallBuffersArePageAligned) {
  const auto arena = make_arena();
  for (const uint64_t bytes : {uint64_t{1}, kPage + 1, kColorThreshold - 1}) {
    const Buffer buffer = take(*arena, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data) % kPage, 0u);
    EXPECT_EQ(buffer.data - arena->data(), static_cast<ptrdiff_t>(buffer.offset));
  }
}

// Buffers have addresses but no memory in this process from now on, so that large ones are cheap.
bool populate_nothing() {
  return test::deny_syscall(SYS_madvise, 0, 23);  // MADV_POPULATE_WRITE
}

TEST(Arena, LargeBuffersTakeTheColorsInTurn) {
  EXPECT_EQ(test::run_in_child([] {
              CHILD_EXPECT(populate_nothing());
              const auto arena = make_arena();
              std::vector<Buffer> buffers;
              for (uint64_t i = 0; i <= kColors; ++i) {
                // Small ones between do not take a turn.
                take(*arena, kPage);
                buffers.push_back(take(*arena, kColorThreshold));
                const uint64_t color = i % kColors * kColorStep;
                CHILD_EXPECT(buffers.back().offset % kPage == color % kPage);
                CHILD_EXPECT(buffers.back().offset % 64 == 0);
              }
              for (uint64_t i = 0; i < kColors; ++i) {
                for (uint64_t j = 0; j < i; ++j) {
                  CHILD_EXPECT(distance_modulo(buffers[i].offset, buffers[j].offset, kPage) >= 64);
                }
              }
              return 0;
            }),
            0);
}

TEST(Arena, StreamsOfAPowerOfTwoDoNotAlias) {
  EXPECT_EQ(test::run_in_child([] {
              CHILD_EXPECT(populate_nothing());
              for (uint64_t bytes = kColorThreshold; bytes <= 1024 * kMiB; bytes *= 2) {
                const auto arena = make_arena(6 * bytes);
                std::vector<uint64_t> starts;
                for (int stream = 0; stream < 4; ++stream) {
                  starts.push_back(reinterpret_cast<uintptr_t>(take(*arena, bytes).data));
                }
                const uint64_t period = std::min<uint64_t>(bytes, 1 << 27);
                for (size_t i = 0; i < starts.size(); ++i) {
                  for (size_t j = 0; j < i; ++j) {
                    CHILD_EXPECT(distance_modulo(starts[i], starts[j], period) >= kColorStep);
                  }
                }
              }
              return 0;
            }),
            0);
}

TEST(Arena, KeepsContentsThroughRandomCalls) {
  const auto arena = make_arena(64 * kMiB);
  struct Item {
    Buffer buffer;
    int value;
  };
  std::mt19937 random(1);
  std::vector<Item> live;
  uint64_t usage = 0;
  uint64_t peak = 0;
  for (int step = 0; step < 2000; ++step) {
    if (live.empty() || random() % 100 < 52) {
      const uint64_t bytes = random() % 4 == 0 ? random() % 300000 : random() % 9000;
      auto buffer = arena->allocate(bytes, MemoryKind::staging, "fuzz");
      if (!buffer.ok()) {
        ASSERT_EQ(buffer.error().code(), MERON_E_NO_MEMORY);
        continue;
      }
      ASSERT_TRUE(all_are(*buffer, 0)) << step;
      const int value = 1 + static_cast<int>(random() % 255);
      std::memset(buffer->data, value, bytes);
      live.push_back({*buffer, value});
      usage += footprint(bytes);
      peak = std::max(peak, usage);
    } else {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(all_are(live.back().buffer, live.back().value)) << step;
      usage -= footprint(live.back().buffer.bytes);
      arena->release(live.back().buffer);
      live.pop_back();
    }
    ASSERT_EQ(arena->total_usage(), usage);
    ASSERT_EQ(arena->total_peak(), peak);
    if (page_size() == kPage) {
      ASSERT_EQ(arena->file().allocated_bytes(), usage);
    }
  }
  for (const Item& item : live) EXPECT_TRUE(all_are(item.buffer, item.value));
}

TEST(Arena, IsSafeFromManyThreads) {
  const auto arena = make_arena();
  const auto work = [&](int value) {
    for (int round = 0; round < 100; ++round) {
      const Buffer buffer = take(*arena, static_cast<uint64_t>(value * 1000 + round));
      EXPECT_TRUE(all_are(buffer, 0));
      std::memset(buffer.data, value, buffer.bytes);
      EXPECT_TRUE(all_are(buffer, value));
      EXPECT_GT(arena->total_peak(), 0u);
      arena->release(buffer);
    }
  };
  std::vector<std::thread> threads;
  for (int value = 1; value <= 4; ++value) threads.emplace_back(work, value);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena->total_usage(), 0u);
  EXPECT_EQ(arena->file().allocated_bytes(), 0u);
}

TEST(Arena, AWriteToTheReadableAddressFaults) {
  if (kThreadSanitizer) GTEST_SKIP() << "under ThreadSanitizer there is one address";
  const auto arena = make_arena();
  const Buffer buffer = take(*arena, 1000);
  EXPECT_EQ(test::run_in_child([&] {
              ::signal(SIGSEGV, SIG_DFL);
              const_cast<volatile std::byte*>(arena->readable(buffer.data))[0] = std::byte{1};
              return 0;
            }),
            1000 + SIGSEGV);
  EXPECT_TRUE(all_are(buffer, 0));
}

// Also after it grew, and where memory was used before.
TEST(Arena, TheReadableAddressShowsTheSamePages) {
  const auto arena = make_arena();
  arena->release(take(*arena, 3 * kMiB));
  const Buffer buffer = arena->promise(kMiB, MemoryKind::param, "test", 3 * kMiB).value();
  ASSERT_TRUE(arena->provide(buffer, "test").ok());
  ASSERT_TRUE(arena->extend(buffer, 3 * kMiB, "test").ok());
  const uint64_t pages = arena->file().allocated_bytes();
  const std::byte* const seen = arena->readable(buffer.data);
  EXPECT_EQ(seen == buffer.data, kThreadSanitizer);
  for (const int value : {1, 2}) {
    std::memset(buffer.data, value, 3 * kMiB);
    EXPECT_TRUE(
        std::all_of(seen, seen + 3 * kMiB, [=](std::byte b) { return b == std::byte(value); }));
  }
  EXPECT_EQ(arena->file().allocated_bytes(), pages);
  EXPECT_EQ(arena->total_usage(), footprint(3 * kMiB));
}

TEST(Arena, UnderASanitizerReleasedMemoryIsOutOfBoundsAtBothAddresses) {
  if (!kAddressSanitizer) GTEST_SKIP() << "of AddressSanitizer";
  const auto arena = make_arena();
  const Buffer buffer = take(*arena, 1000);
  const auto ended_by_a_read = [&] {
    return test::run_in_child([&] {
      return std::to_integer<int>(
          const_cast<const volatile std::byte*>(arena->readable(buffer.data))[999]);
    });
  };
  EXPECT_EQ(ended_by_a_read(), 0);
  arena->release(buffer);
  EXPECT_NE(ended_by_a_read(), 0);
}

TEST(Arena, PeersReadItAlsoAfterItIsGone) {
  auto arena = make_arena();
  const Buffer buffer = take(*arena, 1000);
  std::memset(buffer.data, 0x11, buffer.bytes);
  auto peer = PeerArena::attach(UniqueFd(::dup(arena->fd())));
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ((*peer)->size(), arena->size());
  const std::byte* seen = (*peer)->readable(buffer.offset);
  EXPECT_NE(seen, buffer.data);
  EXPECT_EQ(seen[999], std::byte{0x11});
  buffer.data[999] = std::byte{0x22};
  EXPECT_EQ(seen[999], std::byte{0x22});
  arena.reset();
  EXPECT_EQ(seen[0], std::byte{0x11});
  EXPECT_EQ(PeerArena::attach(UniqueFd(::memfd_create("bare", 0))).error().code(), MERON_E_AUTH);
}

TEST(Arena, AForkedChildCannotDestroyItsParentsData) {
  auto arena = make_arena();
  const Buffer buffer = take(*arena, kMiB);
  std::memset(buffer.data, 0x33, buffer.bytes);
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(buffer.data[0] == std::byte{0x33});
              const auto more = arena->allocate(1, MemoryKind::param, "x");
              CHILD_EXPECT(!more.ok() && more.error().code() == MERON_E_FORKED);
              arena->release(buffer);
              arena.reset();
              return 0;
            }),
            0);
  EXPECT_TRUE(all_are(buffer, 0x33));
  EXPECT_EQ(arena->total_usage(), footprint(kMiB));
}

}  // namespace
}  // namespace meron
