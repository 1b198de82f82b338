// SPDX-License-Identifier: Apache-2.0
// Ranks whose devices exchange without the host. Each rank has an emulated device of its own, and
// waits for it outside of Meron, as trainers do.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/distributed/device_trainer.h"
#include "tests/distributed/one_param.h"

namespace meron::test {

// `param`: more fields of the entry, such as R"(, "gather_window": "1 MiB")".
inline std::string joined_plan(const std::string& param = "") {
  return R"({"preset": "zero3", "param": {"tier": "device")" + param +
         R"(}, "gradient": {"tier": "device"}, "optimizer": {"tier": "device"}})";
}

inline World joined_world(int ranks, const char* transport = "local",
                          const std::string& param = "") {
  World world{transport, ranks, joined_plan(param)};
  world.device = "emulated";
  world.devices = true;
  return world;
}

// Runs ranks on devices that MERON_EMULATED_DEVICE describes.
inline bool run_joined(const World& world, const std::string& settings, const RankMain& body) {
  ::setenv("MERON_EMULATED_DEVICE", std::string("count=8").append(settings).c_str(), 1);
  const bool well = run_world(world, body);
  ::unsetenv("MERON_EMULATED_DEVICE");
  return well;
}

struct Failure {
  meron_status status = MERON_OK;
  std::string message;
  int rank = MERON_RANK_NONE;  // to blame
};

// Calls `call` with an error object, and keeps its status and text.
template <class Call>
Failure failure_of(Call call) {
  meron_error* error = nullptr;
  Failure failure;
  failure.status = call(&error);
  if (error != nullptr) {
    failure.message = meron_error_message(error);
    meron_error_free(error);
  }
  return failure;
}

inline meron_future begin_gather(const OneParam& model) {
  meron_future gather{};
  CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
  return gather;
}

inline void expect_ones(const OneParam& model, int rank) {
  const TrainersDevice device(rank);
  const meron_future gather = begin_gather(model);
  CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
  meron_view view{};
  CALL(meron_gather_view, &view, gather, model.param);
  std::vector<float> values(view.count);
  device.copy(values.data(), view.data, view.count * sizeof(float));
  for (const float value : values) require(value == 1.0f, "what was written");
  CALL(meron_gather_release_on_stream, gather, device.stream());
}

}  // namespace meron::test
