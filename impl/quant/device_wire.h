// SPDX-License-Identifier: Apache-2.0
// Wire, for arrays in memory of a device: the same bytes and sums, asked of a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "device/device.h"
#include "plan/codec.h"

namespace meron {

// Applies a codec other than `none` to arrays of f32, bf16 or f16 in device memory. Unlike Wire it
// encodes no differences and measures no error.
class DeviceWire {
 public:
  DeviceWire(const Codec& codec, const Device& device, void* stream)
      : codec_(codec), device_(device), stream_(stream) {}

  // Uses the residuals of `tasks` if the codec has feedback.
  Status encode(std::span<const meron_encode_task> tasks, DType type) const;
  Status decode(std::span<const meron_cast_task> tasks, DType type) const;
  // As Device::reduce().
  Status sum(float* out, bool accumulate, std::span<const void* const> in, float scale, uint64_t n,
             std::byte* squares) const;

 private:
  meron_quant_format format() const;

  const Codec codec_;
  const Device& device_;
  void* const stream_;
};

}  // namespace meron
