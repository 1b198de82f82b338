// SPDX-License-Identifier: Apache-2.0
#include "shard/shard_on_nvme.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "disk.h"
#include "rendezvous/join.h"
#include "tests/unit/rendezvous/meeting.h"

namespace meron {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// The lock of a context that has nothing else.
class Locked final : public Held {
 public:
  explicit Locked(Mutex& mutex) : Held(mutex, true) {}
};

class ShardOnNvmeTest : public testing::Test {
 protected:
  void SetUp() override {
    MERON_NEED_DISK(directory_);
    auto joined = join_self(meeting(0, 1));
    ASSERT_TRUE(joined.ok());
    transport_ = std::make_unique<Transport>(std::move(*joined));
    Plan plan;
    plan.nvme.path = directory_.path();
    rank_ = std::make_unique<Rank>(*transport_, plan, 1, 30 * kSecond);
  }
  void make(uint64_t bytes) {
    values_.assign(bytes, std::byte{0});
    auto made = ShardOnNvme::create(*rank_, values_.data(), bytes, 0, "the values");
    ASSERT_TRUE(made.ok()) << test::text_of(Status(made.error()));
    shard_ = std::move(*made);
  }
  void await() { shard_->wait(30 * kSecond); }

  test::DiskDirectory directory_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Rank> rank_;
  std::vector<std::byte> values_;
  std::unique_ptr<Shard> shard_;
  Held::Mutex mutex_;
};

// A save reads while a gather's read has ended and is not consumed yet; the gather is cancelled,
// and its memory freed, before the save has the lock again.
TEST_F(ShardOnNvmeTest, ARangeThatIsReadLeavesTheReadOfAnotherThreadAlone) {
  constexpr uint64_t kBytes = 32 << 20, kPiece = 64 << 10;
  make(kBytes);
  std::fill(values_.begin(), values_.end(), std::byte{7});
  ASSERT_TRUE(*shard_->open(true));
  shard_->store();
  await();
  ASSERT_TRUE(*shard_->stage());
  shard_->forget();
  ASSERT_FALSE(*shard_->stage());
  await();

  std::atomic<bool> reading{false};
  std::thread other([&] {
    while (!reading.load()) std::this_thread::yield();
    const Locked lock(mutex_);  // while read() has released it
    shard_->forget();
    std::fill(values_.begin(), values_.end(), std::byte{0});
  });
  std::vector<std::byte> piece(kPiece);
  {
    const Locked lock(mutex_);
    reading.store(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it waits for the lock by now
    EXPECT_OK(shard_->read(0, kPiece, piece.data()));
  }
  other.join();
  EXPECT_EQ(piece, std::vector<std::byte>(kPiece, std::byte{7}));
  EXPECT_FALSE(*shard_->stage()) << "memory that was given back counts as read";
  await();
  EXPECT_TRUE(*shard_->stage());
  EXPECT_EQ(values_, std::vector<std::byte>(kBytes, std::byte{7}));
}

TEST_F(ShardOnNvmeTest, ARangeIsReadAfterTheWriteUnderWay) {
  constexpr uint64_t kBytes = 4 << 20;
  make(kBytes);
  for (int round = 1; round < 20; ++round) {
    ASSERT_TRUE(*shard_->open(true));
    std::fill(values_.begin(), values_.end(), static_cast<std::byte>(round));
    shard_->store();
    std::vector<std::byte> piece(4096);
    EXPECT_OK(shard_->read(kBytes - 4096, 4096, piece.data()));
    EXPECT_EQ(piece, std::vector<std::byte>(4096, static_cast<std::byte>(round)));
  }
}

}  // namespace
}  // namespace meron
