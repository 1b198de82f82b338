// SPDX-License-Identifier: Apache-2.0
// A gradient in device memory. All work is queued on the stream DeviceSide::work(), so that
// buckets, sums and the optimizer's step follow each other without a wait. The host waits only for
// the squares of a complete sum.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/device_side.h"
#include "gradient/gradient.h"

namespace meron {

class GradientOnDevice final : public GradientMemory {
 public:
  // MERON_E_NO_MEMORY, MERON_E_DEVICE.
  static Result<std::unique_ptr<GradientOnDevice>> create(Gradient& gradient);
  explicit GradientOnDevice(Gradient& gradient);
  ~GradientOnDevice() override;

  bool on_device() const override { return true; }
  Place& place() override { return place_; }
  Status add(std::span<const GivenGradient> gradients, void* stream) override;
  Result<bool> added() override { return true; }
  Status complete() override;
  Status prepare(const Pass& pass) override;
  std::byte* bucket(size_t flat) const override { return flats_[flat].bucket.data(); }
  float* sum(size_t flat) const override { return as_floats(flats_[flat].sum); }
  float* row(size_t flat) const override;
  std::byte* encoded(size_t flat, int replica) const override;
  std::byte* encoded_sum(size_t flat) const override;
  float* residual(size_t flat) const override { return as_floats(flats_[flat].residual); }
  std::byte* room(const Pass& pass, Step step, size_t flat, int member) const override;
  Status begin_squares(bool wanted) override;
  void release_bucket() override;
  Status end_work() override;
  Result<bool> settled() override;
  Result<float*> show(size_t flat) override;
  Status take_back() override;
  Status read_feedback(size_t flat, const Range& range, std::byte* out) const override;
  Status write_feedback(size_t flat, const Range& range, const std::byte* data) override;

  // Address of the first replica's part of a sum that replicas exchange, encoded if there is a
  // codec, and the distance in bytes between parts.
  std::byte* shared(size_t flat) const;
  uint64_t shared_stride(size_t flat) const;

 private:
  // bucket: held from its first gradient until it is summed. rows (sent by peers), row_sum (if
  // sums_apart), encoded (the row, part by part) and parts (sent by replicas): held from prepare()
  // to release_bucket(). shown: a copy of the sum on the host, once the host has requested it.
  struct Rooms {
    DeviceMemory sum, residual, bucket, rows, row_sum, encoded, parts;
    Buffer shown;
  };

  static float* as_floats(const DeviceMemory& memory) {
    return reinterpret_cast<float*>(memory.data());
  }
  Unit& unit() const { return gradient_.unit(); }
  DeviceSide& side() const { return *unit().rank().device; }
  bool coded() const { return unit().rank().plan.gradient.codec.kind != CodecKind::none; }
  DType sent_type(const Pass& pass, size_t flat) const;
  uint64_t encoded_stride(size_t flat) const;
  Status take(DeviceMemory& room, uint64_t bytes, const char* what);
  Status take_for_replicas(const Pass& pass, size_t flat);
  Status open_bucket(size_t flat);
  Status pack(std::span<const GivenGradient> gradients, void* stream);
  Result<const std::byte*> on_device_now(const GivenGradient& gradient);
  Status hold(DeviceMemory& room, uint64_t bytes, const char* what);

  Gradient& gradient_;
  PlaceOnDevice place_;
  std::vector<Rooms> flats_;
  std::vector<DeviceMemory> copies_;  // of gradients on the host, until the sum is asked for
  uint64_t held_ = 0;                 // bytes of sums and residuals, as they are counted
  DeviceMemory squares_there_;        // MERON_SQUARES_BYTES
  Buffer squares_here_;               // the same, on the host
  bool showing_ = false;
  DeviceEvent done_;
};

}  // namespace meron
