// SPDX-License-Identifier: Apache-2.0
// Who is woken when the device has done its work, and when the device is asked for that.
#include "device/device_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "../call_log/two_ranks.h"
#include "base/clock.h"

namespace meron {
namespace {

extern "C" meron_status meron_backend_query(uint32_t abi, meron_backend* out,
                                            meron_backend_failure* failure);

std::atomic<int> notified{0};  // times the device was asked to call back

const meron_device_table& emulated_table() {
  static meron_backend backend{};
  if (backend.struct_size == 0) {
    backend.struct_size = sizeof(backend);
    EXPECT_EQ(meron_backend_query(MERON_BACKEND_ABI, &backend, nullptr), MERON_OK);
  }
  return *backend.device;
}

class DeviceSideTest : public testing::Test {
 protected:
  void SetUp() override {
    table_ = emulated_table();
    table_.stream_notify = [](void* device, void* stream, meron_device_notify_fn notify, void* user,
                              meron_backend_failure* failure) {
      ++notified;
      return emulated_table().stream_notify(device, stream, notify, user, failure);
    };
    device_ = Device::open("emulated", table_, 0).value();
    side_ = DeviceSide::create(device_, *ranks_.transports[0]).value();
    notified = 0;
  }
  Transport& transport() { return *ranks_.transports[0]; }

  TwoRanks ranks_{"device-side"};
  meron_device_table table_{};
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceSide> side_;
};

TEST_F(DeviceSideTest, WorkThatNobodyWaitsForCallsNobodyBack) {
  for (void* const stream : {side_->up(), side_->down(), side_->work()}) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(side_->wake_after(stream).ok());
  }
  EXPECT_EQ(notified, 0);
  // A sleeper is woken once for each stream, for any number of requests.
  Transport::Sleeper sleeper(transport());
  sleeper.sleep(20 * kNanosPerMilli);
  EXPECT_EQ(notified, 3);
  Transport::Sleeper next(transport());
  next.sleep(kNanosPerMilli);
  EXPECT_EQ(notified, 3);
}

TEST_F(DeviceSideTest, WorkThatIsAskedForWhileSomebodyWaitsCallsBackAtOnce) {
  const Transport::Sleeper sleeper(transport());
  ASSERT_TRUE(side_->wake_after(side_->work()).ok());
  EXPECT_EQ(notified, 1);
}

TEST_F(DeviceSideTest, ASleeperIsWokenByWorkThatWasAskedForBefore) {
  auto memory = device_->allocate(64, side_->work(), "a test").value();
  ASSERT_TRUE(device_->fill(memory.data(), 1, 64, side_->work()).ok());
  ASSERT_TRUE(side_->wake_after(side_->work()).ok());
  const int64_t begun = now_ns();
  Transport::Sleeper sleeper(transport());
  sleeper.sleep(60 * kNanosPerSecond);
  EXPECT_LT(now_ns() - begun, 30 * kNanosPerSecond);
}

}  // namespace
}  // namespace meron
