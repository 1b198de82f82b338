// SPDX-License-Identifier: Apache-2.0
// Steps of a trainer that computes on a device, for tests that stop and go on: the same
// micro-batches as train() of saved_worlds.h, so that both end in the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/distributed/device_trainer.h"
#include "tests/distributed/saved_worlds.h"

namespace meron::test {

// The tier of a world's units.
enum class Computes : uint8_t {
  on_host,    // no device
  on_own,     // each rank has a device, and devices exchange by themselves
  on_shared,  // all ranks share one, and exchange through the host
};

struct DeviceWay {
  Way way;
  Computes computes = Computes::on_own;
};

inline bool on_device(const DeviceWay& way) {
  return way.computes != Computes::on_host;
}

// run_world, with the devices of `way`. Ranks share a GPU: there are no more of them.
inline bool run_device_world(const DeviceWay& way, int ranks, const RankMain& body) {
  World world = world_of(way.way, ranks);
  if (on_device(way)) world.device = kDevice;
  world.devices = way.computes == Computes::on_own && emulated();
  ::setenv("MERON_EMULATED_DEVICE", world.devices ? "count=8" : "shared=1", 1);
  const bool well = run_world(world, body);
  ::unsetenv("MERON_EMULATED_DEVICE");
  return well;
}

using ChangeGradients = void (*)(std::vector<std::vector<float>>& gradients);

// Whole values, as the device's memory has them.
inline std::vector<std::vector<float>> values_on(const TrainersDevice& device,
                                                 const Trainer& trainer) {
  std::vector<std::vector<float>> values(kParams);
  std::vector<meron_future> gathers(trainer.units.size());
  for (size_t u = 0; u < gathers.size(); ++u) {
    CALL(meron_gather_begin, &gathers[u], &trainer.units[u], 1, nullptr);
    CALL(meron_gather_wait_stream, gathers[u], device.stream(), MERON_TIMEOUT_DEFAULT);
  }
  for (size_t i = 0; i < kParams; ++i) {
    meron_view view{};
    CALL(meron_gather_view, &view, gathers[trainer.unit_of[i]], trainer.params[i]);
    const uint64_t bytes = view.count * meron_dtype_size(view.dtype);
    std::vector<std::byte> host(bytes + 1);
    device.copy(host.data(), view.data, bytes);
    view.data = host.data();
    values[i] = Trainer::to_f32(view);
  }
  for (const meron_future gather : gathers) {
    CALL(meron_gather_release_on_stream, gather, device.stream());
  }
  return values;
}

// One micro-batch: values and gradients are in the device's memory. `change`: of the gradients,
// before they are given.
inline void device_micro_batch(const TrainersDevice& device, Trainer& trainer, uint64_t micro_batch,
                               meron_reduce_options options, ChangeGradients change = nullptr) {
  const auto values = values_on(device, trainer);
  auto gradients = trainer.zeros();
  std::array<const float*, kParams> in{};
  std::array<float*, kParams> out{};
  for (size_t i = 0; i < kParams; ++i) {
    in[i] = values[i].data();
    out[i] = gradients[i].data();
  }
  (void)tiny_step(micro_batch, in, out);
  if (change != nullptr) change(gradients);
  std::array<void*, kParams> placed{};
  for (size_t i = 0; i < kParams; ++i) {
    const uint64_t bytes = trainer.descs[i].count() * sizeof(float);
    placed[i] = device.allocate(bytes + 1);
    device.copy(placed[i], gradients[i].data(), bytes);
  }
  options.stream = device.stream();
  for (size_t u = trainer.units.size(); u-- > 0;) {
    std::vector<meron_source> sources;
    for (size_t i = 0; i < kParams; ++i) {
      if (trainer.unit_of[i] != u) continue;
      sources.push_back({trainer.params[i], placed[i], trainer.descs[i].count(), MERON_F32, 0});
    }
    CALL(meron_reduce_begin, nullptr, trainer.units[u], sources.data(), sources.size(), &options);
  }
  CALL(meron_reduce_wait, trainer.units.data(), trainer.units.size(), MERON_TIMEOUT_DEFAULT);
  for (void* const data : placed) device.release(data);
}

// As train() of saved_worlds.h, wherever `way` computes.
inline void train_on(const DeviceWay& way, Trainer& trainer, int rank, int ranks, int first,
                     int steps) {
  if (!on_device(way)) {
    train(trainer, rank, ranks, first, steps);
    return;
  }
  const TrainersDevice device(way.computes == Computes::on_own ? rank : 0);
  for (int step = first; step < first + steps; ++step) {
    device_micro_batch(device, trainer, static_cast<uint64_t>(step * ranks + rank),
                       MERON_REDUCE_OPTIONS_INIT);
    trainer.step();
  }
}

}  // namespace meron::test
