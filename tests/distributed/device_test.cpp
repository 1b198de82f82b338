// SPDX-License-Identifier: Apache-2.0
// Ranks that compute on a device: what they train must have the bits of ranks that compute on the
// host, for every plan; memory of the device is held from a gather to its release; and what fails
// there is told, and leaves the rest usable. The device is the emulated one: each of its streams is
// a thread, so that ThreadSanitizer sees a copy that nothing orders. tests/gpu runs the same on a
// GPU, which all ranks share, but for what only the emulated one can be told to do.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "meron/backend.h"
#include "tests/distributed/one_param.h"
#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

#ifndef MERON_TEST_DEVICE
#define MERON_TEST_DEVICE "emulated"
#endif
constexpr const char* kDevice = MERON_TEST_DEVICE;

bool emulated() {
  return std::strcmp(kDevice, "emulated") == 0;
}

constexpr int kSteps = kSanitized ? 3 : 10;
constexpr int kAccumulate = 2;

// What a trainer has of the device: a stream, memory, and copies.
class TrainersDevice {
 public:
  TrainersDevice() {
    meron_backend backend{};
    backend.struct_size = sizeof(backend);
    // That which the engine has opened.
    void* const module = dlopen("libmeron_" MERON_TEST_DEVICE ".so", RTLD_NOW | RTLD_LOCAL);
    require(module != nullptr, "the module");
    const auto query =
        reinterpret_cast<meron_backend_query_fn>(dlsym(module, "meron_backend_query"));
    require(query(MERON_BACKEND_ABI, &backend, nullptr) == MERON_OK, "the module works");
    table_ = backend.device;
    require(table_->open(&handle_, 0, nullptr) == MERON_OK, "a device");
    require(table_->stream_create(&stream_, handle_, 0, nullptr) == MERON_OK, "a stream");
  }
  ~TrainersDevice() {
    synchronize();
    table_->stream_destroy(handle_, stream_);
    table_->close(handle_);
  }
  TrainersDevice(const TrainersDevice&) = delete;
  TrainersDevice& operator=(const TrainersDevice&) = delete;

  void* stream() const { return stream_; }
  void* allocate(uint64_t bytes) const {
    void* data = nullptr;
    require(table_->allocate(&data, handle_, bytes, stream_, nullptr) == MERON_OK, "memory");
    return data;
  }
  void release(void* data) const { (void)table_->release(handle_, data, stream_, nullptr); }
  // From or to memory of the host: has come when this returns.
  void copy(void* to, const void* from, uint64_t bytes) const {
    require(table_->copy(handle_, to, from, bytes, stream_, nullptr) == MERON_OK, "a copy");
  }
  void fill(void* to, uint8_t value, uint64_t bytes) const {
    require(table_->fill(handle_, to, value, bytes, stream_, nullptr) == MERON_OK, "a fill");
  }
  void synchronize() const { (void)table_->stream_synchronize(handle_, stream_, nullptr); }

 private:
  const meron_device_table* table_ = nullptr;
  void* handle_ = nullptr;
  void* stream_ = nullptr;
};

struct Config {
  const char* plan;
  int ranks;
  meron_dtype dtype = MERON_F32;
  meron_dtype gradients = MERON_F32;  // as the trainer has them
  const char* transport = "shm";
};

// Trains the tiny model. On a device: values are read from its memory, after its stream was made to
// wait, and gradients are written there.
void train(const Config& config, int rank, meron_context context, bool on_device, float* losses,
           float* weights) {
  const std::unique_ptr<TrainersDevice> device =
      on_device ? std::make_unique<TrainersDevice>() : nullptr;
  Trainer trainer(context, config.dtype);
  for (int step = 0; step < kSteps; ++step) {
    for (int k = 0; k < kAccumulate; ++k) {
      const auto index = static_cast<size_t>((step * kAccumulate + k) * config.ranks + rank);
      std::vector<meron_gather> gathers(trainer.units.size());
      std::vector<std::vector<float>> values(kParams);
      for (size_t u = 0; u < trainer.units.size(); ++u) {
        CALL(meron_gather_begin, &gathers[u], &trainer.units[u], 1, nullptr);
      }
      for (const meron_gather gather : gathers) {
        if (device) {
          CALL(meron_gather_wait_stream, gather, device->stream(), MERON_TIMEOUT_DEFAULT);
        } else {
          CALL(meron_gather_wait, gather, MERON_TIMEOUT_DEFAULT);
        }
      }
      for (size_t i = 0; i < kParams; ++i) {
        meron_view view{};
        CALL(meron_gather_view, &view, gathers[trainer.unit_of[i]], trainer.params[i]);
        const uint64_t bytes = view.count * meron_dtype_size(view.dtype);
        std::vector<std::byte> host(bytes + 1);
        if (device) {
          device->copy(host.data(), view.data, bytes);
        } else {
          std::memcpy(host.data(), view.data, bytes);
        }
        view.data = host.data();
        values[i] = Trainer::to_f32(view);
      }
      for (const meron_gather gather : gathers) {
        if (device) {
          CALL(meron_gather_release_on_stream, gather, device->stream());
        } else {
          CALL(meron_gather_release, gather);
        }
      }
      auto gradients = trainer.zeros();
      std::array<const float*, kParams> in{};
      std::array<float*, kParams> out{};
      for (size_t i = 0; i < kParams; ++i) {
        in[i] = values[i].data();
        out[i] = gradients[i].data();
      }
      losses[index] = tiny_step(index, in, out);

      // As the trainer's dtype has them, and on the device in memory that it keeps until the
      // reductions have ended.
      std::vector<std::vector<uint16_t>> narrow(kParams);
      std::vector<void*> placed(kParams);
      std::vector<const void*> given(kParams);
      const uint64_t size = meron_dtype_size(config.gradients);
      for (size_t i = 0; i < kParams; ++i) {
        given[i] = gradients[i].data();
        if (config.gradients == MERON_BF16) {
          for (const float value : gradients[i]) {
            uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof(bits));
            narrow[i].push_back(static_cast<uint16_t>(bits >> 16));
          }
          given[i] = narrow[i].data();
        }
        if (!device) continue;
        const uint64_t bytes = trainer.descs[i].count() * size;
        placed[i] = device->allocate(bytes + 1);
        device->copy(placed[i], given[i], bytes);
        given[i] = placed[i];
      }
      meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
      options.boundary = k + 1 == kAccumulate ? 1 : 0;
      options.divisor = kAccumulate;
      options.stream = device ? device->stream() : nullptr;
      for (size_t u = trainer.units.size(); u-- > 0;) {
        std::vector<meron_source> sources;
        for (size_t i = 0; i < kParams; ++i) {
          if (trainer.unit_of[i] != u) continue;
          sources.push_back(
              {trainer.params[i], given[i], trainer.descs[i].count(), config.gradients, 0});
        }
        CALL(meron_reduce_begin, nullptr, trainer.units[u], sources.data(), sources.size(),
             &options);
      }
      CALL(meron_reduce_wait, trainer.units.data(), trainer.units.size(), MERON_TIMEOUT_DEFAULT);
      for (void* const data : placed) {
        if (data != nullptr) device->release(data);
      }
    }
    trainer.step();
  }
  trainer.weights(weights + static_cast<size_t>(rank) * weight_count());
}

class DeviceTwinTest : public testing::TestWithParam<Config> {};

TEST_P(DeviceTwinTest, RanksOnADeviceTrainToTheBitsOfRanksOnTheHost) {
  const Config& config = GetParam();
  const auto losses = static_cast<size_t>(kSteps * kAccumulate * config.ranks);
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
  // Every value once per micro-batch up (flats begin tensors at whole cache lines), every gradient
  // once down.
  constexpr uint64_t kBatches = kSteps * kAccumulate;
  EXPECT_EQ(down[0], kBatches * weight_count() * meron_dtype_size(config.gradients));
  EXPECT_GE(up[0], kBatches * weight_count() * meron_dtype_size(config.dtype));
  EXPECT_LE(up[0], kBatches * (weight_count() + 7 * 64) * meron_dtype_size(config.dtype));
}

INSTANTIATE_TEST_SUITE_P(
    Plans, DeviceTwinTest,
    testing::Values(Config{"zero0", 2}, Config{"zero1", 2}, Config{"zero2", 3}, Config{"zero3", 1},
                    Config{"zero3", 2}, Config{"zero3", 3}, Config{"mics(2)", 4},
                    Config{"zero3", 2, MERON_BF16, MERON_BF16},
                    Config{R"({"preset": "zero3", "gradient": {"dtype": "f32"}})", 2, MERON_BF16,
                           MERON_BF16},
                    Config{"zero1", 2, MERON_BF16, MERON_F32},
                    Config{"zero3", 3, MERON_F32, MERON_F32, "sockets"},
                    Config{"hpz(2)", 4, MERON_F32, MERON_F32, "cluster"},
                    Config{R"({"preset": "zero3", "param": {"tier": "nvme"},
                               "nvme": {"path": "."}})",
                           2}),
    [](const testing::TestParamInfo<Config>& info) { return "Case" + std::to_string(info.index); });

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
    meron_gather first{}, second{};
    CALL(meron_gather_begin, &first, &model.unit, 1, nullptr);
    CALL(meron_gather_begin, &second, &model.unit, 1, nullptr);
    CALL(meron_gather_wait, first, MERON_TIMEOUT_DEFAULT);
    CALL(meron_gather_wait, second, MERON_TIMEOUT_DEFAULT);
    meron_view one{}, two{};
    CALL(meron_gather_view, &one, first, model.param);
    CALL(meron_gather_view, &two, second, model.param);
    require(one.data == two.data, "one place");
    require(std::memcmp(one.data, numbers(1000).data(), 4000) == 0, "the values");
    const uint64_t up = stats_of(context).device_up_bytes;
    require(up >= 4000 && up < 8000, "copied once");
    CALL(meron_gather_release, first);
    require(std::memcmp(two.data, numbers(1000).data(), 4000) == 0, "the other's values");
    CALL(meron_gather_release, second);
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

TEST(DeviceTest, NobodyReadsWhatTheDeviceHasNotYet) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(1, "delay=300000", [](int, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    meron_gather gather{};
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

// The host's values are read by a copy that has hardly begun when the trainer goes on to change
// them: the change waits.
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
    meron_gather gather{};
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

TEST(DeviceTest, AFullDeviceIsToldAndAllElseGoesOn) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(2, "memory=6000", [](int, meron_context context) {
    const TrainersDevice device;
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    void* const taken = device.allocate(3000);
    meron_gather gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    meron_error* err = nullptr;
    require(meron_gather_wait(gather, MERON_TIMEOUT_DEFAULT, &err) == MERON_E_NO_MEMORY, "full");
    const std::string message = meron_error_message(err);
    require(message.find("unit 'u'") != std::string::npos, "the unit");
    require(message.find("emulated:0") != std::string::npos, "the device");
    meron_error_free(err);
    CALL(meron_gather_release, gather);
    device.release(taken);
    device.synchronize();
    require(model.info().leases == 0, "no lease is left");
    model.write(std::vector<float>(1000, 2.0f));
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    CALL(meron_gather_wait, gather, MERON_TIMEOUT_DEFAULT);
    CALL(meron_gather_release, gather);
  }));
}

TEST(DeviceTest, AHostViewIsGivenWhereItIsAskedFor) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  EXPECT_TRUE(run_on_device(1, "memory=10", [](int, meron_context context) {
    const OneParam model(context, 1000);
    model.write(numbers(1000));
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.place = MERON_PLACE_HOST;
    meron_gather gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
    CALL(meron_gather_wait, gather, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_gather_view, &view, gather, model.param);
    require(std::memcmp(view.data, numbers(1000).data(), 4000) == 0, "the values");
    CALL(meron_gather_release, gather);
    require(stats_of(context).device_up_bytes == 0, "nothing was copied");
  }));
}

// The gradient that a broken device does not give is one that the peers wait for: all are told.
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

TEST(DeviceTest, WhatIsAskedOfNoDeviceOrOfAnotherIsRefused) {
  EXPECT_TRUE(run_world({"self", 1, "zero3"}, [](int, meron_context context) {
    const OneParam model(context, 10);
    meron_gather gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    require(meron_gather_wait_stream(gather, nullptr, -1, nullptr) == MERON_E_ARGUMENT, "wait");
    require(meron_gather_release_on_stream(gather, nullptr, nullptr) == MERON_E_ARGUMENT, "end");
    CALL(meron_gather_release, gather);
  }));
  EXPECT_TRUE(run_on_device(1, "", [](int, meron_context context) {
    const OneParam model(context, 10);
    meron_gather gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    int no_stream = 0;
    require(meron_gather_wait_stream(gather, &no_stream, -1, nullptr) == MERON_E_ARGUMENT, "wait");
    CALL(meron_gather_release, gather);
  }));
}

}  // namespace
}  // namespace meron::test
