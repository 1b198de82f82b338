// SPDX-License-Identifier: Apache-2.0
// A trainer that computes on a device: the emulated one, or that which MERON_TEST_DEVICE names.
#pragma once

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "meron/backend.h"
#include "tests/distributed/one_param.h"
#include "tests/distributed/trainer.h"

namespace meron::test {

#ifndef MERON_TEST_DEVICE
#define MERON_TEST_DEVICE "emulated"
#endif
inline constexpr const char* kDevice = MERON_TEST_DEVICE;

inline bool emulated() {
  return std::strcmp(kDevice, "emulated") == 0;
}

inline constexpr int kDeviceSteps = kSanitized ? 3 : 10;
inline constexpr int kDeviceAccumulate = 2;

// A trainer's view of the device: a stream, memory, and copies.
class TrainersDevice {
 public:
  // All ranks share a GPU, whatever `index` is, because the machine may have only one.
  explicit TrainersDevice(int index = 0) {
    meron_backend backend{};
    backend.struct_size = sizeof(backend);
    // The module that the engine has opened.
    void* const module = dlopen("libmeron_" MERON_TEST_DEVICE ".so", RTLD_NOW | RTLD_LOCAL);
    require(module != nullptr, "the module");
    const auto query =
        reinterpret_cast<meron_backend_query_fn>(dlsym(module, "meron_backend_query"));
    require(query(MERON_BACKEND_ABI, &backend, nullptr) == MERON_OK, "the module works");
    table_ = backend.device;
    require(table_->open(&handle_, emulated() ? index : 0, nullptr) == MERON_OK, "a device");
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
  // Memory that the engine has freed on its own streams may not be available yet.
  void* allocate(uint64_t bytes) const {
    void* data = nullptr;
    for (int tries = 0; tries < 2000; ++tries) {
      if (table_->allocate(&data, handle_, bytes, stream_, nullptr) == MERON_OK) return data;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    require(false, "memory");
    return nullptr;
  }
  uint64_t free_bytes() const {
    meron_device_info info{};
    info.struct_size = sizeof(info);
    require(table_->describe(&info, handle_, nullptr) == MERON_OK, "a description");
    return info.free_bytes;
  }
  void release(void* data) const { (void)table_->release(handle_, data, stream_, nullptr); }
  // From or to memory of the host: complete when this returns.
  void copy(void* to, const void* from, uint64_t bytes) const {
    require(table_->copy(handle_, to, from, bytes, stream_, nullptr) == MERON_OK, "a copy");
  }
  void fill(void* to, uint8_t value, uint64_t bytes) const {
    require(table_->fill(handle_, to, value, bytes, stream_, nullptr) == MERON_OK, "a fill");
  }
  // Calls it on a thread of the device when the stream reaches this point. The stream waits for it.
  void notify(meron_device_notify_fn function, void* user) const {
    require(table_->stream_notify(handle_, stream_, function, user, nullptr) == MERON_OK, "a call");
  }
  void synchronize() const { (void)table_->stream_synchronize(handle_, stream_, nullptr); }

 private:
  const meron_device_table* table_ = nullptr;
  void* handle_ = nullptr;
  void* stream_ = nullptr;
};

struct DeviceConfig {
  const char* plan;
  int ranks;
  meron_dtype dtype = MERON_F32;
  meron_dtype gradients = MERON_F32;  // as the trainer has them
  const char* transport = "shm";
  bool devices = false;    // each rank has one of its own
  bool finishes = false;   // the end of an accumulation is a call of its own
  bool scheduled = false;  // units are entered and left, in place of gathers
  bool overflows = false;  // the second step, by an infinite gradient: all ranks skip it
};

// A step with gradients that are not finite. All ranks get the error.
inline void skip_step(Trainer& trainer) {
  meron_future future{};
  CALL(meron_optimizer_step_begin, &future, trainer.optimizer);
  meron_error* error = nullptr;
  const meron_status status = meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &error);
  require(status == MERON_E_NONFINITE, "a step that is skipped");
  meron_error_free(error);
  CALL(meron_future_release, future);
}

// Trains the tiny model. On a device: values are read from its memory, after its stream was made to
// wait, and gradients are written there. `trained`: before weights are
// looked at.
inline void train(const DeviceConfig& config, int rank, meron_context context, bool on_device,
                  float* losses, float* weights, meron_stats* trained = nullptr) {
  const std::unique_ptr<TrainersDevice> device =
      on_device ? std::make_unique<TrainersDevice>(config.devices ? rank : 0) : nullptr;
  Trainer trainer(context, config.dtype);
  meron_schedule schedule{};
  if (config.scheduled) {
    meron_schedule_options options = MERON_SCHEDULE_OPTIONS_INIT;
    options.tier = MERON_TIER_DEVICE;
    options.stream = device ? device->stream() : nullptr;
    options.persist_elements = 100;
    CALL(meron_schedule_create, &schedule, trainer.units.data(), trainer.units.size(), &options);
  }
  for (int step = 0; step < kDeviceSteps; ++step) {
    for (int k = 0; k < kDeviceAccumulate; ++k) {
      const auto index = static_cast<size_t>((step * kDeviceAccumulate + k) * config.ranks + rank);
      std::vector<meron_future> gathers(config.scheduled ? 0 : trainer.units.size());
      std::vector<std::vector<float>> values(kParams);
      for (size_t u = 0; u < gathers.size(); ++u) {
        CALL(meron_gather_begin, &gathers[u], &trainer.units[u], 1, nullptr);
      }
      if (config.scheduled) CALL(meron_schedule_start_pass, schedule, 0);
      for (const meron_future gather : gathers) {
        if (device) {
          CALL(meron_gather_wait_stream, gather, device->stream(), MERON_TIMEOUT_DEFAULT);
        } else {
          CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
        }
      }
      for (size_t i = 0; i < kParams; ++i) {
        meron_view view{};
        const size_t unit = trainer.unit_of[i];
        if (config.scheduled) {
          CALL(meron_schedule_enter, schedule, unit, MERON_TIMEOUT_DEFAULT);
          CALL(meron_schedule_view, &view, schedule, trainer.params[i]);
        } else {
          CALL(meron_gather_view, &view, gathers[unit], trainer.params[i]);
        }
        const uint64_t bytes = view.count * meron_dtype_size(view.dtype);
        std::vector<std::byte> host(bytes + 1);
        if (device) {
          device->copy(host.data(), view.data, bytes);
        } else {
          std::memcpy(host.data(), view.data, bytes);
        }
        view.data = host.data();
        values[i] = Trainer::to_f32(view);
        if (config.scheduled) CALL(meron_schedule_leave, schedule, unit);
      }
      for (const meron_future gather : gathers) {
        if (device) {
          CALL(meron_gather_release_on_stream, gather, device->stream());
        } else {
          CALL(meron_future_release, gather);
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
      const bool overflows = config.overflows && step == 1;
      if (overflows && rank == 0) gradients[0][0] = std::numeric_limits<float>::infinity();

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
      options.boundary = k + 1 == kDeviceAccumulate && !config.finishes ? 1 : 0;
      options.divisor = kDeviceAccumulate;
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
    for (const meron_unit unit : trainer.units) {
      if (!config.finishes) break;
      meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
      options.divisor = kDeviceAccumulate;
      CALL(meron_reduce_finish_begin, nullptr, unit, &options);
    }
    CALL(meron_reduce_wait, trainer.units.data(), trainer.units.size(), MERON_TIMEOUT_DEFAULT);
    if (config.scheduled) CALL(meron_schedule_drop, schedule);
    if (config.overflows && step == 1) {
      skip_step(trainer);
    } else {
      trainer.step();
    }
  }
  if (config.scheduled) CALL(meron_schedule_release, schedule);
  if (trained != nullptr) *trained = stats_of(context);
  trainer.weights(weights + static_cast<size_t>(rank) * weight_count());
}

}  // namespace meron::test
