// SPDX-License-Identifier: Apache-2.0
// Values on their way from a drive to the device: what cannot be pinned goes through memory that
// is, piece by piece, and no call waits for the device meanwhile. Params are larger than all of
// these pieces.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/distributed/device_trainer.h"

namespace meron::test {
namespace {

constexpr int64_t kCount = 10'000'000;  // ten pieces of 4 MiB; the engine has eight
constexpr uint64_t kBytes = kCount * sizeof(float);

// Runs `body` on ranks whose params lie on a drive, with these settings of the emulated device.
bool run_on_device(int ranks, const char* settings,
                   const std::function<void(int, meron_context)>& body) {
  ::setenv("MERON_EMULATED_DEVICE", settings, 1);
  World world{"shm", ranks,
              R"({"preset": "zero3", "param": {"tier": "nvme"}, "nvme": {"path": "."}})"};
  world.device = "emulated";
  const bool passed = run_world(world, body);
  ::unsetenv("MERON_EMULATED_DEVICE");
  return passed;
}

std::vector<float> numbers() {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

meron_future begin(const OneParam& model) {
  meron_future gather{};
  CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
  return gather;
}

// The emulated device's memory is the host's.
const void* wait_for(meron_future gather, const OneParam& model) {
  CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  meron_view view{};
  CALL(meron_gather_view, &view, gather, model.param);
  return view.data;
}

TEST(UploadTest, OnlyPinnedMemoryIsCopiedFrom) {
  EXPECT_TRUE(run_on_device(2, "strict=1,delay=20000", [](int, meron_context context) {
    const OneParam model(context, kCount);
    const std::vector<float> values = numbers();
    model.write(values);
    const meron_future gather = begin(model);
    require(std::memcmp(wait_for(gather, model), values.data(), kBytes) == 0, "the values");
    const meron_stats stats = stats_of(context);
    require(stats.device_up_bytes >= kBytes && stats.device_up_bytes < kBytes + 4096, "once");
    // Beside the values from the drive: half of the values, within a cache line or two. Fewer than
    // eight pieces will do where the device gives them back sooner than they are filled.
    const uint64_t pinned = stats.staging_bytes - kBytes / 2 + 4096;
    require(pinned >> 20 >= 4 && pinned >> 20 <= 32, "eight pieces at most");
    CALL(meron_future_release, gather);
  }));
}

TEST(UploadTest, TheTrainersMemoryIsFilledThatWayToo) {
  EXPECT_TRUE(run_on_device(2, "strict=1", [](int, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, kCount);
    const std::vector<float> values = numbers();
    model.write(values);
    void* const kept = device.allocate(kBytes);
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.mode = MERON_GATHER_INTO;
    options.stream = device.stream();
    const meron_destination destination{model.param, kept, kBytes};
    options.destinations = &destination;
    options.destination_count = 1;
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
    CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
    CALL(meron_gather_release_on_stream, gather, device.stream());
    device.synchronize();
    require(std::memcmp(kept, values.data(), kBytes) == 0, "the values");
    device.release(kept);
  }));
}

TEST(UploadTest, WhereNothingCanBePinnedTheDriverCopies) {
  EXPECT_TRUE(run_on_device(2, "pins=0", [](int, meron_context context) {
    const OneParam model(context, kCount);
    const std::vector<float> values = numbers();
    model.write(values);
    const meron_future gather = begin(model);
    require(std::memcmp(wait_for(gather, model), values.data(), kBytes) == 0, "the values");
    CALL(meron_future_release, gather);
  }));
}

// Until its pieces are used up, and then.
void progress(meron_context context, int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (std::chrono::steady_clock::now() < end) CALL(meron_context_progress, context);
}

TEST(UploadTest, TheRemainingUserContinuesTheUpload) {
  EXPECT_TRUE(run_on_device(2, "strict=1,delay=10000", [](int, meron_context context) {
    const OneParam model(context, kCount);
    const std::vector<float> values = numbers();
    model.write(values);
    const meron_future first = begin(model), second = begin(model);
    progress(context, 50);
    CALL(meron_future_release, first);
    require(std::memcmp(wait_for(second, model), values.data(), kBytes) == 0, "the values");
    CALL(meron_future_release, second);
  }));
}

// The device has memory for two: a cancelled gather frees its memory after its pending copies.
TEST(UploadTest, ACancelledUploadFreesItsMemory) {
  EXPECT_TRUE(
      run_on_device(2, "strict=1,delay=5000,memory=170000000", [](int rank, meron_context context) {
        const OneParam model(context, kCount);
        const std::vector<float> values = numbers();
        model.write(values);
        for (int i = 0; i < 4; ++i) {
          const meron_future gather = begin(model);
          progress(context, 10 + 20 * i + 10 * rank);
          CALL(meron_future_release, gather);
        }
        require(model.info().leases == 0, "no lease is left");
        const meron_future gather = begin(model);
        require(std::memcmp(wait_for(gather, model), values.data(), kBytes) == 0, "the values");
        CALL(meron_future_release, gather);
        model.write(std::vector<float>(kCount, 1.0f));
      }));
}

TEST(UploadTest, ADeviceThatBreaksOnTheWayIsNamed) {
  EXPECT_TRUE(run_on_device(2, "break=5", [](int, meron_context context) {
    const OneParam model(context, kCount);
    model.write(numbers());
    const meron_future first = begin(model), second = begin(model);
    for (const meron_future gather : {first, second}) {
      meron_error* err = nullptr;
      meron_status status = meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &err);
      // It breaks when it is far behind the call: reading the values returns the error.
      if (status == MERON_OK) {
        meron_view view{};
        status = meron_gather_view(&view, gather, model.param, &err);
      }
      require(status == MERON_E_DEVICE, meron_error_message(err));
      require(std::string(meron_error_message(err)).find("emulated:0") != std::string::npos,
              "the device");
      meron_error_free(err);
    }
  }));
}

}  // namespace
}  // namespace meron::test
