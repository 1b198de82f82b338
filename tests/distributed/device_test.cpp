// SPDX-License-Identifier: Apache-2.0
// Ranks that compute on a device: what they train must have the bits of ranks that compute on the
// host, for every plan; memory of the device is held from a gather to its release; and a failure
// there is reported, and leaves the rest usable. The device is the emulated one: each of its
// streams is a thread, so that ThreadSanitizer sees a copy that nothing orders. tests/gpu runs the
// same on a GPU, which all ranks share, except for settings that only the emulated one has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "meron/backend.h"
#include "tests/distributed/device_trainer.h"
#include "tests/distributed/one_param.h"

namespace meron::test {
namespace {

class DeviceTwinTest : public testing::TestWithParam<DeviceConfig> {};

TEST_P(DeviceTwinTest, RanksOnADeviceTrainToTheBitsOfRanksOnTheHost) {
  const DeviceConfig& config = GetParam();
  const auto losses = static_cast<size_t>(kDeviceSteps * kDeviceAccumulate * config.ranks);
  const size_t weights = weight_count() * static_cast<size_t>(config.ranks);
  Shared<float> host_losses(losses), device_losses(losses);
  Shared<float> host_weights(weights), device_weights(weights);
  Shared<uint64_t> up(1), down(1);
  World world{config.transport, config.ranks, config.plan};
  world.node = 2;
  ASSERT_TRUE(run_world(world, [&](int rank, meron_context context) {
    train(config, rank, context, false, host_losses.data(), host_weights.data());
  }));
  world.device = kDevice;
  ASSERT_TRUE(run_world(world, [&](int rank, meron_context context) {
    train(config, rank, context, true, device_losses.data(), device_weights.data());
    const meron_stats stats = stats_of(context);
    if (rank == 0) {
      up[0] = stats.device_up_bytes;
      down[0] = stats.device_down_bytes;
    }
  }));
  EXPECT_EQ(std::memcmp(host_losses.data(), device_losses.data(), losses * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(host_weights.data(), device_weights.data(), weights * sizeof(float)), 0);
  // Every value is copied to the device once per micro-batch (tensors begin at cache lines), every
  // gradient once down.
  constexpr uint64_t kBatches = kDeviceSteps * kDeviceAccumulate;
  EXPECT_EQ(down[0], kBatches * weight_count() * meron_dtype_size(config.gradients));
  // A schedule copies them to the device again while the order is unknown, and less often later.
  const uint64_t least = config.scheduled ? kDeviceSteps : kBatches;
  const uint64_t most = config.scheduled ? 2 * kBatches : kBatches;
  EXPECT_GE(up[0], least * weight_count() * meron_dtype_size(config.dtype));
  EXPECT_LE(up[0], most * (weight_count() + 7 * 64) * meron_dtype_size(config.dtype));
}

DeviceConfig scheduled(const char* plan, int ranks) {
  DeviceConfig config{plan, ranks};
  config.scheduled = true;
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, DeviceTwinTest,
    testing::Values(DeviceConfig{"zero0", 2}, DeviceConfig{"zero1", 2}, DeviceConfig{"zero2", 3},
                    DeviceConfig{"zero3", 1}, DeviceConfig{"zero3", 2}, DeviceConfig{"zero3", 3},
                    DeviceConfig{"mics(2)", 4}, DeviceConfig{"zero3", 2, MERON_BF16, MERON_BF16},
                    DeviceConfig{R"({"preset": "zero3", "gradient": {"dtype": "f32"}})", 2,
                                 MERON_BF16, MERON_BF16},
                    DeviceConfig{"zero1", 2, MERON_BF16, MERON_F32},
                    DeviceConfig{"zero3", 3, MERON_F32, MERON_F32, "sockets"},
                    DeviceConfig{"hpz(2)", 4, MERON_F32, MERON_F32, "cluster"},
                    DeviceConfig{R"({"preset": "zero3", "param": {"tier": "nvme"},
                               "nvme": {"path": "."}})",
                                 2},
                    scheduled("zero3", 2), scheduled("zero2", 2), scheduled("hpz(2)", 4)),
    [](const testing::TestParamInfo<DeviceConfig>& info) {
      return "Case" + std::to_string(info.index);
    });

// Runs `body` on a context with the emulated device, with these settings of it.
bool run_on_device(int ranks, const char* settings,
                   const std::function<void(int, meron_context)>& body) {
  ::setenv("MERON_EMULATED_DEVICE", settings, 1);
  World world{"shm", ranks, "zero3"};
  world.device = kDevice;
  const bool passed = run_world(world, body);
  ::unsetenv("MERON_EMULATED_DEVICE");
  return passed;
}

std::vector<float> numbers(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST(DeviceTest, GathersAtATimeShareOneCopy) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(2, "delay=1000", [](int, meron_context context) {
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    meron_future first{}, second{};
    CALL(meron_gather_begin, &first, &model.unit, 1, nullptr);
    CALL(meron_gather_begin, &second, &model.unit, 1, nullptr);
    CALL(meron_future_wait, first, MERON_TIMEOUT_DEFAULT);
    CALL(meron_future_wait, second, MERON_TIMEOUT_DEFAULT);
    meron_view one{}, two{};
    CALL(meron_gather_view, &one, first, model.param);
    CALL(meron_gather_view, &two, second, model.param);
    require(one.data == two.data, "one place");
    require(std::memcmp(one.data, numbers(1000).data(), 4000) == 0, "the values");
    const uint64_t up = stats_of(context).device_up_bytes;
    require(up >= 4000 && up < 8000, "copied once");
    CALL(meron_future_release, first);
    require(std::memcmp(two.data, numbers(1000).data(), 4000) == 0, "the other's values");
    CALL(meron_future_release, second);
  }));
}

// Gathers a unit of some params on the device into the device's memory, at addresses plus `offset`.
// The device breaks in its operation `broken`. Returns true if all earlier operations succeeded.
bool gathers_into(int params, uintptr_t offset, int broken) {
  ::setenv("MERON_EMULATED_DEVICE", ("break=" + std::to_string(broken)).c_str(), 1);
  World world{"self", 1, R"({"preset": "zero3", "param": {"tier": "device"}})"};
  world.device = kDevice;
  Shared<int> well(1);
  (void)run_world(world, [&](int, meron_context context) {
    const TrainersDevice device;
    constexpr int64_t kCount = 7;
    std::vector<meron_param> all(static_cast<size_t>(params));
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string name = "p" + std::to_string(i);
      meron_param_desc desc = MERON_PARAM_DESC_INIT;
      desc.name = name.c_str();
      desc.shape = &kCount;
      desc.dims = 1;
      desc.dtype = i % 2 == 0 ? MERON_F32 : MERON_BF16;
      CALL(meron_param_register, &all[i], context, &desc);
    }
    meron_unit unit{};
    if (meron_unit_create(&unit, context, "u", all.data(), all.size(), nullptr) < 0) _exit(0);
    auto* const memory = static_cast<std::byte*>(device.allocate(all.size() * 64));
    std::vector<meron_destination> places;
    for (size_t i = 0; i < all.size(); ++i) {
      meron_destination place{};
      place.param = all[i];
      place.data = memory + i * 64 + offset;
      place.bytes = kCount * (i % 2 == 0 ? 4 : 2);
      places.push_back(place);
    }
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.mode = MERON_GATHER_INTO;
    options.destinations = places.data();
    options.destination_count = places.size();
    meron_future gather{};
    const bool begun = meron_gather_begin(&gather, &unit, 1, &options, nullptr) >= 0;
    well[0] = begun && meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, nullptr) >= 0 ? 1 : 0;
    _exit(0);
  });
  ::unsetenv("MERON_EMULATED_DEVICE");
  return well[0] != 0;
}

int operations_of(int params, uintptr_t offset = 0) {
  for (int broken = 1; broken < 200; ++broken) {
    if (gathers_into(params, offset, broken)) return broken;
  }
  return -1;
}

// Each single copy is a call of the driver, so params on the device are copied together.
TEST(DeviceTest, AGatherOnTheDeviceIsOneOperationForEachType) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  const int few = operations_of(2), many = operations_of(12);
  EXPECT_GT(few, 0);
  EXPECT_EQ(many, few);
  // No kernel writes where an element is not aligned.
  EXPECT_EQ(operations_of(12, 1) - operations_of(2, 1), 10);
}

TEST(DeviceTest, AGatherIntoPlacesThatAreNotAlignedHasTheValues) {
  World world{"self", 1, R"({"preset": "zero3", "param": {"tier": "device"}})"};
  world.device = kDevice;
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    for (const size_t offset : {0, 1}) {
      auto* const memory = static_cast<std::byte*>(device.allocate(4096));
      meron_destination place{};
      place.param = model.param;
      place.data = memory + offset;
      place.bytes = 4000;
      meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
      options.mode = MERON_GATHER_INTO;
      options.destinations = &place;
      options.destination_count = 1;
      meron_future gather{};
      CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
      CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
      std::vector<float> seen(1000);
      device.copy(seen.data(), memory + offset, 4000);
      device.synchronize();
      require(seen == numbers(1000), "the values");
      CALL(meron_future_release, gather);
      device.release(memory);
    }
  }));
}

// Large buffers do not begin at a page.
TEST(DeviceTest, BuffersOfAnySizeArePinned) {
  World world{"shm", 2, "zero3"};
  world.device = kDevice;
  world.log = [](void*, meron_log_level, const char* message, size_t) {
    require(std::strstr(message, "pinned") == nullptr, message);
  };
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    const TrainersDevice device;
    constexpr int64_t kCount = 5'000'000;
    const OneParam model(context, kCount);
    void* const gradient = device.allocate(kCount * sizeof(float));
    device.fill(gradient, 0, kCount * sizeof(float));
    const meron_source source{model.param, gradient, kCount, MERON_F32, 0};
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.stream = device.stream();
    meron_future future{};
    CALL(meron_reduce_begin, &future, model.unit, &source, 1, &options);
    finish(future);
    device.release(gradient);
  }));
}

TEST(DeviceTest, NoRankReadsValuesBeforeTheDeviceHasThem) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(1, "delay=300000", [](int, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    CALL(meron_context_progress, context);
    meron_view view{};
    require(meron_gather_view(&view, gather, model.param, nullptr) == MERON_E_STATE, "too early");
    CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
    CALL(meron_gather_view, &view, gather, model.param);
    std::vector<float> seen(1000);
    device.copy(seen.data(), view.data, 4000);
    require(seen == numbers(1000), "the values");
    CALL(meron_gather_release_on_stream, gather, device.stream());
  }));
}

// A copy still reads the host's values when the trainer begins to change them: the change waits.
TEST(DeviceTest, AnUpdateWaitsForCopiesOfTheVersionBefore) {
  EXPECT_TRUE(run_on_device(2, "delay=20000", [](int, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    void* const kept = device.allocate(4000);
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.mode = MERON_GATHER_INTO;
    options.stream = device.stream();
    const meron_destination destination{model.param, kept, 4000};
    options.destinations = &destination;
    options.destination_count = 1;
    device.fill(kept, 1, 4000);  // before the copy, which waits for it
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
    CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
    CALL(meron_gather_release_on_stream, gather, device.stream());
    model.write(std::vector<float>(1000, -1.0f));
    std::vector<float> seen(1000);
    device.copy(seen.data(), kept, 4000);
    require(seen == numbers(1000), "the version that was gathered");
    device.release(kept);
  }));
}

TEST(DeviceTest, AFullDeviceIsReportedAndOtherWorkContinues) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(2, "memory=6000", [](int, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    void* const taken = device.allocate(3000);
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    meron_error* err = nullptr;
    require(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &err) == MERON_E_NO_MEMORY, "full");
    const std::string message = meron_error_message(err);
    require(message.find("unit 'u'") != std::string::npos, "the unit");
    require(message.find("emulated:0") != std::string::npos, "the device");
    meron_error_free(err);
    CALL(meron_future_release, gather);
    device.release(taken);
    device.synchronize();
    require(model.info().leases == 0, "no lease is left");
    model.write(std::vector<float>(1000, 2.0f));
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    CALL(meron_future_release, gather);
  }));
}

TEST(DeviceTest, AHostViewIsGivenWhereItIsAskedFor) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(1, "memory=10", [](int, meron_context context) {
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.tier = MERON_TIER_HOST;
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
    CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_gather_view, &view, gather, model.param);
    require(std::memcmp(view.data, numbers(1000).data(), 4000) == 0, "the values");
    CALL(meron_future_release, gather);
    require(stats_of(context).device_up_bytes == 0, "nothing was copied");
  }));
}

// The peers wait for a gradient that a broken device does not supply: all ranks get the error.
TEST(DeviceTest, ABrokenDeviceIsNamedOnEveryRank) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(2, "break=2", [](int rank, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    std::vector<float> gradient(1000, 1.0f);
    meron_source source{model.param, gradient.data(), 1000, MERON_F32, 0};
    if (rank == 0) {
      void* const place = device.allocate(4000);
      device.fill(place, 0, 4000);
      device.synchronize();
      source.data = place;
    }
    meron_future future{};
    meron_error* err = nullptr;
    // Whichever call sees it first.
    meron_status status = meron_reduce_begin(&future, model.unit, &source, 1, nullptr, &err);
    if (status == MERON_OK) status = meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &err);
    require(status == MERON_E_DEVICE, meron_error_message(err));
    require(std::string(meron_error_message(err)).find("emulated:0") != std::string::npos,
            "the device");
    meron_error_free(err);
  }));
}

TEST(DeviceTest, RejectsCallsForNoDeviceOrForAnotherOne) {
  EXPECT_TRUE(run_world({"self", 1, "zero3"}, [](int, meron_context context) {
    const OneParam model(context, 10);
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    require(meron_gather_wait_stream(gather, nullptr, -1, nullptr) == MERON_E_ARGUMENT, "wait");
    require(meron_gather_release_on_stream(gather, nullptr, nullptr) == MERON_E_ARGUMENT, "end");
    CALL(meron_future_release, gather);
  }));
  EXPECT_TRUE(run_on_device(1, "", [](int, meron_context context) {
    const OneParam model(context, 10);
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    int no_stream = 0;
    require(meron_gather_wait_stream(gather, &no_stream, -1, nullptr) == MERON_E_ARGUMENT, "wait");
    CALL(meron_future_release, gather);
  }));
}

}  // namespace
}  // namespace meron::test
