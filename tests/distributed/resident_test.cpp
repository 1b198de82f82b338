// SPDX-License-Identifier: Apache-2.0
// Rows of tier device: parameters, sums and optimizer states that lie on the device must train to
// the bits of those on the host, and move only what has to move. The device is as in
// device_test.cpp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/distributed/device_trainer.h"
#include "tests/distributed/one_param.h"

namespace meron::test {
namespace {

// Placement: the `tiers` of a plan's text, and the bytes per element of the model that a step moves
// over the link.
struct Resident {
  std::string tiers;
  DeviceConfig like;       // the same on the host
  bool exchanged = false;  // between ranks, by the host
  bool updates = false;    // the device does
};

const std::string kValues = R"("param": {"tier": "device"})";
const std::string kAll = kValues + R"(, "gradient": {"tier": "device"},
                                       "optimizer": {"tier": "device"})";
const std::string kWide = kValues + R"(, "gradient": {"tier": "device", "dtype": "f32"},
                                        "optimizer": {"tier": "device"})";
const std::string kNarrow = kValues + R"(, "gradient": {"tier": "device"},
                                          "optimizer": {"tier": "device", "dtype": "bf16"})";
const std::string kNvme = kValues + R"(, "optimizer": {"tier": "nvme"}, "nvme": {"path": "."})";

class ResidentTest : public testing::TestWithParam<Resident> {};

TEST_P(ResidentTest, StatesOnTheDeviceTrainToTheSameBits) {
  const Resident& config = GetParam();
  const DeviceConfig& like = config.like;
  if (like.devices && !emulated()) GTEST_SKIP() << "needs a device for each rank";
  const auto losses = static_cast<size_t>(kDeviceSteps * kDeviceAccumulate * like.ranks);
  const size_t weights = weight_count() * static_cast<size_t>(like.ranks);
  Shared<float> host_losses(losses), device_losses(losses);
  Shared<float> host_weights(weights), device_weights(weights);
  Shared<uint64_t> up(1), down(1);
  Shared<meron_stats> host(1), device(1);
  World world{like.transport, like.ranks, like.plan};
  world.node = 2;
  ASSERT_TRUE(run_world(world, [&](int rank, meron_context context) {
    meron_stats stats{};
    train(like, rank, context, false, host_losses.data(), host_weights.data(), &stats);
    if (rank == 0) host[0] = stats;
  }));
  world.plan =
      config.tiers.front() == '{' ? config.tiers : R"({"preset": "zero3", )" + config.tiers + "}";
  world.device = kDevice;
  world.devices = like.devices;
  // Ranks that share a device go by the host.
  ::setenv("MERON_EMULATED_DEVICE", like.devices ? "count=4" : "shared=1", 1);
  const bool trained = run_world(world, [&](int rank, meron_context context) {
    meron_stats stats{};
    train(like, rank, context, true, device_losses.data(), device_weights.data(), &stats);
    if (rank == 0) {
      up[0] = stats.device_up_bytes;
      down[0] = stats.device_down_bytes;
      device[0] = stats;
    }
  });
  ::unsetenv("MERON_EMULATED_DEVICE");
  ASSERT_TRUE(trained);
  EXPECT_EQ(std::memcmp(host_losses.data(), device_losses.data(), losses * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(host_weights.data(), device_weights.data(), weights * sizeof(float)), 0);
  if (config.exchanged) return;
  // The same is exchanged, by whichever way.
  EXPECT_EQ(device[0].gather_mapped_bytes + device[0].gather_copied_bytes,
            host[0].gather_mapped_bytes + host[0].gather_copied_bytes);
  EXPECT_EQ(device[0].reduce_bytes, host[0].reduce_bytes);
  // Values that the trainer wrote are copied to the device once; values that the host updates, once
  // a step. If the host sums gradients, they are copied from the device.
  const uint64_t values = (weight_count() + 7 * 64) * meron_dtype_size(like.dtype);
  EXPECT_LE(up[0], values * (config.updates ? 1 : 1 + kDeviceSteps));
  const uint64_t gradients =
      kDeviceSteps * kDeviceAccumulate * weight_count() * meron_dtype_size(like.gradients);
  EXPECT_EQ(down[0], config.updates ? 0 : gradients);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ResidentTest,
    testing::Values(
        Resident{kValues, {"zero3", 1}}, Resident{kValues, {"zero3", 1, MERON_BF16, MERON_BF16}},
        Resident{kValues, {"zero3", 2}, true}, Resident{kValues, {"zero3", 3, MERON_BF16}, true},
        Resident{kNvme, {"zero3", 1, MERON_BF16, MERON_BF16}},
        Resident{kAll, {"zero3", 1}, false, true},
        Resident{kAll, {"zero3", 1, MERON_BF16, MERON_BF16}, false, true},
        Resident{
            kWide,
            {R"({"preset": "zero3", "gradient": {"dtype": "f32"}})", 1, MERON_BF16, MERON_BF16},
            false,
            true},
        Resident{kAll, {"zero3", 1, MERON_BF16, MERON_F32}, false, true},
        Resident{
            kNarrow,
            {R"({"preset": "zero3", "optimizer": {"dtype": "bf16"}})", 1, MERON_BF16, MERON_BF16},
            false,
            true},
        Resident{kAll, {"zero3", 2}, true, true},
        Resident{kValues, {"zero3", 2, MERON_BF16, MERON_BF16, "local", true}},
        Resident{kAll, {"zero3", 2, MERON_F32, MERON_F32, "local", true}, false, true},
        Resident{kAll, {"zero3", 3, MERON_BF16, MERON_BF16, "local", true}, false, true},
        Resident{kWide,
                 {R"({"preset": "zero3", "gradient": {"dtype": "f32"}})", 4, MERON_BF16, MERON_BF16,
                  "local", true},
                 false,
                 true},
        Resident{kAll, {"zero3", 3, MERON_BF16, MERON_BF16, "sockets-threads", true}, false, true},
        Resident{kAll, {"zero3", 3, MERON_BF16, MERON_BF16, "shm", true}, false, true},
        Resident{kValues, {"zero3", 2, MERON_F32, MERON_F32, "shm", true}},
        Resident{kAll, {"zero3", 2, MERON_F32, MERON_F32, "sockets", true}, false, true},
        Resident{kAll, {"zero3", 3, MERON_BF16, MERON_BF16}, true, true},
        Resident{kAll, {"zero3", 2, MERON_F32, MERON_F32, "sockets"}, true, true}),
    [](const testing::TestParamInfo<Resident>& info) {
      return "Case" + std::to_string(info.index);
    });

// A rank without memory for its shards reports it before anything depends on them.
TEST(ResidentFailureTest, ADeviceWithoutMemoryIsReported) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  ::setenv("MERON_EMULATED_DEVICE", "memory=165000", 1);
  const std::string plan = R"({"preset": "zero3", )" + kAll + "}";
  World world{"self", 1, plan.c_str()};
  world.device = kDevice;
  const bool passed = run_world(world, [](int, meron_context context) {
    // Values, sums and states of one unit fit, and nothing of a larger one.
    const OneParam model(context, 10'000);
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    const int64_t shape = 30'000;
    desc.name = "more";
    desc.shape = &shape;
    desc.dims = 1;
    meron_param param{};
    CALL(meron_param_register, &param, context, &desc);
    meron_unit unit{};
    meron_error* error = nullptr;
    require(meron_unit_create(&unit, context, "more", &param, 1, &error) == MERON_E_NO_MEMORY,
            "no memory");
    require(std::strstr(meron_error_message(error), "unit 'more'") != nullptr, "the unit's name");
    meron_error_free(error);
    // The additional memory of a reduction does not.
    const std::vector<float> values(10'000, 2.0f);
    model.write(values);
    meron_optimizer optimizer{};
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, nullptr);
    const meron_source source{model.param, values.data(), values.size(), MERON_F32, 0};
    meron_future future{};
    require(
        meron_reduce_begin(&future, model.unit, &source, 1, nullptr, &error) == MERON_E_NO_MEMORY,
        "no memory for a gradient");
    meron_error_free(error);
    // With fewer states it fits, and all existing objects continue to work.
    CALL(meron_optimizer_release, optimizer);
    meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
    options.learning_rate = 0.5;
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &options);
    CALL(meron_reduce_begin, &future, model.unit, &source, 1, nullptr);
    finish(future);
    CALL(meron_optimizer_step_begin, &future, optimizer);
    finish(future);
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_gather_view, &view, gather, model.param);
    const auto* const seen = static_cast<const float*>(view.data);
    require(seen[0] == 1.0f && seen[9'999] == 1.0f, "stepped");
    CALL(meron_future_release, gather);
  });
  ::unsetenv("MERON_EMULATED_DEVICE");
  EXPECT_TRUE(passed);
}

// A device that breaks in a step breaks the group, by name.
TEST(ResidentFailureTest, ADeviceThatBreaksIsNamed) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  const std::string plan = R"({"preset": "zero3", )" + kAll + "}";
  for (const char* settings : {"break=8", "break=12", "break=16", "break=20"}) {
    ::setenv("MERON_EMULATED_DEVICE", settings, 1);
    World world{"self", 1, plan.c_str()};
    world.device = kDevice;
    EXPECT_TRUE(run_world(world, [](int, meron_context context) {
      meron_error* error = nullptr;
      meron_status status = MERON_OK;
      const auto train = [&] {
        meron_param_desc desc = MERON_PARAM_DESC_INIT;
        const int64_t shape = 1000;
        desc.name = "w";
        desc.shape = &shape;
        desc.dims = 1;
        meron_param param{};
        meron_unit unit{};
        meron_optimizer optimizer{};
        meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
        const std::vector<float> gradient(1000, 1.0f);
        status = meron_param_register(&param, context, &desc, &error);
        if (status >= 0) status = meron_unit_create(&unit, context, "u", &param, 1, &error);
        if (status >= 0) {
          status = meron_optimizer_create(&optimizer, &unit, 1, &options, &error);
        }
        for (int step = 0; status >= 0 && step < 4; ++step) {
          meron_source given{param, gradient.data(), gradient.size(), MERON_F32, 0};
          meron_future future{};
          status = meron_reduce_begin(&future, unit, &given, 1, nullptr, &error);
          if (status >= 0) status = meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &error);
          if (status >= 0) status = meron_optimizer_step_begin(&future, optimizer, &error);
          if (status >= 0) status = meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &error);
        }
      };
      train();
      require(status == MERON_E_DEVICE, "a broken device");
      require(std::strstr(meron_error_message(error), "emulated:0") != nullptr, "its name");
      meron_error_free(error);
    }));
    ::unsetenv("MERON_EMULATED_DEVICE");
  }
}

}  // namespace
}  // namespace meron::test
