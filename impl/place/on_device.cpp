// SPDX-License-Identifier: Apache-2.0
#include "place/place.h"
#include "quant/device_wire.h"

namespace meron {
namespace {

std::byte* squares_of(const Sum& sum) {
  return sum.squares != nullptr ? sum.squares->there : nullptr;
}

}  // namespace

Status PlaceOnDevice::zero(void* to, uint64_t bytes) {
  return device_.fill(static_cast<std::byte*>(to), 0, bytes, stream_);
}

Status PlaceOnDevice::copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  return device_.copy(to, from, bytes, stream_);
}

Status PlaceOnDevice::sum(const Sum& sum) {
  return device_.reduce(sum.out, sum.accumulate, sum.in, sum.type, sum.scale, sum.count,
                        squares_of(sum), stream_);
}

Status PlaceOnDevice::sum_encoded(const Codec& codec, const Sum& sum) {
  return DeviceWire(codec, device_, stream_)
      .sum(sum.out, sum.accumulate, sum.in, sum.scale, sum.count, squares_of(sum));
}

Status PlaceOnDevice::encode(const Codec& codec, std::span<const meron_encode_task> tasks,
                             kernels::QuantError* /*error*/) {
  return DeviceWire(codec, device_, stream_).encode(tasks, DType::f32);
}

Status PlaceOnDevice::decode(const Codec& codec, std::span<const meron_cast_task> tasks) {
  return DeviceWire(codec, device_, stream_).decode(tasks, DType::f32);
}

}  // namespace meron
