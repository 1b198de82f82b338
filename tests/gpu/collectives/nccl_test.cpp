// SPDX-License-Identifier: Apache-2.0
// The module over the real NCCL, with one rank: that its declarations fit the library, that work
// lies on the stream when a call returns, and that memory is registered and windows opened. Ranks
// that exchange something need a device each.
#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "device/modules.h"

namespace meron {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBytes = 1 << 20;

// Long: not under compute-sanitizer, which reports whatever NCCL tries of the driver.
class LongNcclOnGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const DeviceModule nccl = probe_nccl();
    if (!nccl.reason.empty()) GTEST_SKIP() << nccl.reason;
    library_ = open_collectives("nccl").value();
    device_ = open_device("cuda:0").value();
    stream_ = device_->create_stream(false).value();
    from_ = device_->allocate(kBytes, stream_.get(), "a test").value();
    to_ = device_->allocate(kBytes, stream_.get(), "a test").value();
    ASSERT_TRUE(device_->fill(to_.data(), 0, kBytes, stream_.get()).ok());
    open(false);
  }

  void open(bool copy_engines) {
    const CommunicatorId id = library_->create_id().value();
    auto begun = library_->begin(id, 1, 0, 0, 60s, copy_engines);
    ASSERT_TRUE(begun.ok()) << begun.error().info().what;
    communicator_ = std::move(begun).value();
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (true) {
      const auto ready = communicator_->ready();
      ASSERT_TRUE(ready.ok()) << ready.error().info().what;
      if (*ready) break;
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(1ms);
    }
  }

  void fill(int value) {
    ASSERT_TRUE(
        device_->fill(from_.data(), static_cast<uint8_t>(value), kBytes, stream_.get()).ok());
  }
  // The received bytes, after all queued work of the stream.
  std::vector<uint8_t> read() {
    std::vector<uint8_t> host(kBytes);
    EXPECT_TRUE(device_->copy(host.data(), to_.data(), kBytes, stream_.get()).ok());
    EXPECT_TRUE(device_->synchronize(stream_.get()).ok());
    return host;
  }
  static void require(const Status& status) {
    ASSERT_TRUE(status.ok()) << status.error().info().what;
  }

  std::shared_ptr<const DeviceCollectives> library_;
  std::shared_ptr<Device> device_;
  DeviceStream stream_;
  DeviceMemory from_, to_;
  std::shared_ptr<DeviceCommunicator> communicator_;
};

TEST_F(LongNcclOnGpuTest, AnAllGatherIsWorkOfTheStream) {
  for (int round = 1; round < 20; ++round) {
    fill(round);
    require(communicator_->all_gather(from_.data(), to_.data(), kBytes, stream_.get()));
    fill(0);
    EXPECT_EQ(read(), std::vector<uint8_t>(kBytes, static_cast<uint8_t>(round)));
  }
  require(communicator_->close());
}

TEST_F(LongNcclOnGpuTest, APieceForTheRankItselfIsACopy) {
  fill(7);
  const meron_exchange_piece pieces[] = {
      {0, 0, from_.data(), 100, to_.data() + 300, 100},
      {0, 0, from_.data(), 0, nullptr, 0},
      {0, 0, from_.data() + 1, 33, to_.data() + 5, 33},
  };
  require(communicator_->exchange(pieces, stream_.get()));
  std::vector<uint8_t> expected(kBytes);
  std::memset(expected.data() + 300, 7, 100);
  std::memset(expected.data() + 5, 7, 33);
  EXPECT_EQ(read(), expected);
  require(communicator_->close());
}

TEST_F(LongNcclOnGpuTest, AGroupOfTwo) {
  fill(9);
  require(communicator_->begin_group());
  require(communicator_->all_gather(from_.data(), to_.data(), 64, stream_.get()));
  require(communicator_->all_gather(from_.data(), to_.data() + 128, 64, stream_.get()));
  require(communicator_->end_group());
  const std::vector<uint8_t> got = read();
  EXPECT_EQ(got[63], 9);
  EXPECT_EQ(got[64], 0);
  EXPECT_EQ(got[191], 9);
  require(communicator_->close());
}

TEST_F(LongNcclOnGpuTest, MemoryIsRegisteredOrRefused) {
  auto registration = communicator_->register_memory(from_.data(), kBytes);
  if (!registration.ok()) {
    EXPECT_LE(registration.error().code(), MERON_E_ARGUMENT);
  }
  fill(3);
  require(communicator_->all_gather(from_.data(), to_.data(), kBytes, stream_.get()));
  EXPECT_EQ(read()[kBytes - 1], 3);
  if (registration.ok()) registration->reset();
  require(communicator_->close());
}

TEST_F(LongNcclOnGpuTest, AWindowIsOpenedOrRefused) {
  require(communicator_->close());
  open(true);  // the newer configuration
  auto window = communicator_->open_window(2 * kBytes);
  if (!window.ok()) {
    EXPECT_EQ(window.error().code(), MERON_E_UNSUPPORTED) << window.error().info().what;
    require(communicator_->abort());
    return;
  }
  std::byte* const place = window->data() + kBytes;
  ASSERT_TRUE(device_->fill(place, 6, kBytes, stream_.get()).ok());
  require(communicator_->all_gather(place, place, kBytes, stream_.get()));
  ASSERT_TRUE(device_->copy(to_.data(), place, kBytes, stream_.get()).ok());
  EXPECT_EQ(read(), std::vector<uint8_t>(kBytes, 6));
  window->reset();
  require(communicator_->close());
}

TEST_F(LongNcclOnGpuTest, AnAbortLeavesTheDeviceUsable) {
  require(communicator_->all_gather(from_.data(), to_.data(), kBytes, stream_.get()));
  require(communicator_->abort());
  EXPECT_EQ(communicator_->ready().error().code(), MERON_E_ABORTED);
  require(communicator_->close());
  fill(4);
  ASSERT_TRUE(device_->copy(to_.data(), from_.data(), kBytes, stream_.get()).ok());
  EXPECT_EQ(read()[0], 4);
}

TEST_F(LongNcclOnGpuTest, ADeviceThatIsNotThereIsNamed) {
  const auto begun = library_->begin(library_->create_id().value(), 1, 0, 4096, 1s);
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().code(), MERON_E_ARGUMENT);
  EXPECT_THAT(begun.error().info().what, testing::HasSubstr("4096"));
}

}  // namespace
}  // namespace meron
