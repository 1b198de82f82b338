// SPDX-License-Identifier: Apache-2.0
#include "quant/device_wire.h"

#include <algorithm>
#include <vector>

#include "quant/wire.h"

namespace meron {

meron_quant_format DeviceWire::format() const {
  return {.bits = codec_.bits(),
          .block = codec_.block,
          .stochastic = codec_.stochastic ? 1u : 0u,
          .hadamard = codec_.hadamard ? 1u : 0u};
}

Status DeviceWire::encode(std::span<const meron_encode_task> tasks, DType type) const {
  if (codec_.blocked()) {
    return device_.encode(format(), tasks, type, static_cast<float>(codec_.feedback_beta), stream_);
  }
  std::vector<meron_cast_task> casts(tasks.size());
  std::transform(tasks.begin(), tasks.end(), casts.begin(), [](const meron_encode_task& task) {
    return meron_cast_task{task.out, task.in, task.count};
  });
  return device_.cast(casts, narrow(codec_, type), type, false, stream_);
}

Status DeviceWire::decode(std::span<const meron_cast_task> tasks, DType type) const {
  if (codec_.blocked()) return device_.decode(format(), tasks, type, stream_);
  return device_.cast(tasks, type, narrow(codec_, type), false, stream_);
}

Status DeviceWire::sum(float* out, bool accumulate, std::span<const void* const> in, float scale,
                       uint64_t n, std::byte* squares) const {
  if (codec_.blocked()) {
    return device_.reduce_encoded(format(), out, accumulate, in, scale, n, squares, stream_);
  }
  return device_.reduce(out, accumulate, in, narrow(codec_, DType::f32), scale, n, squares,
                        stream_);
}

}  // namespace meron
