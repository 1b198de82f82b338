// SPDX-License-Identifier: Apache-2.0
#include "io/swap_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>

#include "disk.h"

namespace meron {
namespace {

using test::Bytes;
using test::finish;

class SwapFileTest : public test::OnDisk {
 protected:
  std::shared_ptr<SwapFile> swap(const std::shared_ptr<IoEngine>& engine,
                                 const SwapOptions& options = {}) const {
    auto made = SwapFile::create(engine, directory_.path(), options);
    EXPECT_TRUE(made.ok()) << made.error().info().what;
    return *made;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, SwapFileTest,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

TEST_P(SwapFileTest, KeepsStatesApart) {
  std::mt19937_64 random(23);
  const auto engine = this->engine({.block = 65536});
  const auto swap = this->swap(engine);
  struct State {
    Extent extent;
    std::vector<std::byte> bytes;
  };
  std::vector<State> states;
  for (int round = 0; round < 60; ++round) {
    if (states.size() > 6 || (!states.empty() && random() % 3 == 0)) {
      const size_t index = random() % states.size();
      State& state = states[index];
      Bytes back(state.extent.bytes);
      EXPECT_OK(finish(engine->read(swap->file(), state.extent.offset, back.data(), back.size())));
      EXPECT_OK(swap->verify(state.extent.offset, back.data(), back.size()));
      EXPECT_EQ(back.copy(), state.bytes);
      swap->free(state.extent);
      states.erase(states.begin() + static_cast<ptrdiff_t>(index));
      continue;
    }
    Bytes bytes(1 + random() % 400'000);
    bytes.draw(random);
    const auto extent = swap->allocate(bytes.size());
    ASSERT_TRUE(extent.ok()) << extent.error().info().what;
    EXPECT_EQ(extent->offset % kSwapBlock, 0u);
    EXPECT_EQ(extent->bytes, bytes.size());
    swap->seal(extent->offset, bytes.data(), bytes.size());
    EXPECT_OK(finish(engine->write(swap->file(), extent->offset, bytes.data(), bytes.size())));
    states.push_back({*extent, bytes.copy()});
  }
  for (const State& state : states) swap->free(state.extent);
  EXPECT_EQ(swap->allocated(), 0u);
  // All is one range again: what was ever used fits without growth.
  const uint64_t size = swap->size();
  EXPECT_EQ(swap->allocate(size)->offset, 0u);
  EXPECT_EQ(swap->size(), size);
  EXPECT_TRUE(directory_.empty());
}

TEST_P(SwapFileTest, AFlippedBitIsFoundInItsBlock) {
  std::mt19937_64 random(29);
  const auto engine = this->engine();
  const auto swap = this->swap(engine);
  constexpr uint64_t kBytes = 5 * kSwapBlock + 1234;
  (void)swap->allocate(kSwapBlock);
  const auto extent = swap->allocate(kBytes);
  ASSERT_TRUE(extent.ok());
  Bytes bytes(kBytes), back(kBytes);
  bytes.draw(random);
  swap->seal(extent->offset, bytes.data(), kBytes);
  EXPECT_OK(finish(engine->write(swap->file(), extent->offset, bytes.data(), kBytes)));
  for (int round = 0; round < 40; ++round) {
    const uint64_t at = round == 0 ? kBytes - 1 : random() % kBytes;
    const auto flip = [&] {
      std::byte one{};
      EXPECT_OK(finish(engine->read(swap->file(), extent->offset + at, &one, 1)));
      one ^= static_cast<std::byte>(1 << (round % 8));
      EXPECT_OK(finish(engine->write(swap->file(), extent->offset + at, &one, 1)));
    };
    flip();
    EXPECT_OK(finish(engine->read(swap->file(), extent->offset, back.data(), kBytes)));
    const Status status = swap->verify(extent->offset, back.data(), kBytes);
    ASSERT_FALSE(status.ok()) << at;
    EXPECT_EQ(status.error().code(), MERON_E_CORRUPT);
    EXPECT_EQ(status.error().info().subject, swap->file()->path());
    const uint64_t offset = (extent->offset + at) / kSwapBlock * kSwapBlock;
    EXPECT_THAT(status.error().info().what,
                testing::HasSubstr("block " + std::to_string(offset / kSwapBlock) + " (at offset " +
                                   std::to_string(offset) + ")"));
    flip();
  }
  EXPECT_OK(finish(engine->read(swap->file(), extent->offset, back.data(), kBytes)));
  EXPECT_OK(swap->verify(extent->offset, back.data(), kBytes));
}

TEST_P(SwapFileTest, WhatWasNotSealedIsNotBelieved) {
  const auto engine = this->engine();
  const auto swap = this->swap(engine);
  const auto extent = swap->allocate(2 * kSwapBlock);
  Bytes bytes(2 * kSwapBlock);
  const Status unsealed = swap->verify(extent->offset, bytes.data(), bytes.size());
  EXPECT_EQ(unsealed.error().code(), MERON_E_INTERNAL);
  swap->seal(extent->offset, bytes.data(), bytes.size());
  EXPECT_OK(swap->verify(extent->offset, bytes.data(), bytes.size()));
  EXPECT_FALSE(swap->verify(extent->offset, bytes.data(), bytes.size() - 1).ok());
  swap->free(*extent);
  EXPECT_FALSE(swap->verify(extent->offset, bytes.data(), bytes.size()).ok());
}

TEST_P(SwapFileTest, ChecksumsMayBeMadeOnSeveralThreadsWhileTheFileGrows) {
  const auto engine = this->engine();
  const auto swap = this->swap(engine, {.prewrite = false});
  constexpr uint64_t kBytes = 64 * kSwapBlock;
  Bytes bytes(kBytes);
  std::mt19937_64 random(31);
  bytes.draw(random);
  const auto extent = swap->allocate(kBytes);
  std::vector<std::thread> threads;
  for (uint64_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      const uint64_t at = part * kBytes / 4;
      for (int round = 0; round < 5; ++round) {
        swap->seal(extent->offset + at, bytes.data() + at, kBytes / 4);
        EXPECT_OK(swap->verify(extent->offset + at, bytes.data() + at, kBytes / 4));
      }
    });
  }
  for (int round = 0; round < 20; ++round) EXPECT_TRUE(swap->allocate(10 * kSwapBlock).ok());
  for (auto& thread : threads) thread.join();
  EXPECT_OK(swap->verify(extent->offset, bytes.data(), kBytes));
}

TEST_P(SwapFileTest, ADeadlineEndsTheWaitForTheDisk) {
  const auto engine = this->engine();
  const auto swap = this->swap(engine);
  const auto late = swap->allocate(64 << 20, Deadline::after(0));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), MERON_E_TIMEOUT);
  EXPECT_TRUE(swap->allocate(1 << 20).ok());
}

TEST_P(SwapFileTest, WhatCannotFitIsRefusedBeforeAnythingIsWritten) {
  const auto engine = this->engine();
  const auto big = SwapFile::create(engine, directory_.path(), {.expected = 1ull << 60});
  ASSERT_FALSE(big.ok());
  EXPECT_EQ(big.error().code(), MERON_E_NO_SPACE);
  const auto swap = this->swap(engine);
  EXPECT_EQ(swap->allocate(UINT64_MAX).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(swap->allocate(0)->bytes, 0u);
}

}  // namespace
}  // namespace meron
