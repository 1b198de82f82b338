// SPDX-License-Identifier: Apache-2.0
// The memory of a unit's gradient: the buckets that micro-batches are written to, this rank's f32
// sums, and the feedback of the codec. on_host.h and on_device.h implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gradient/pass.h"
#include "place/place.h"

namespace meron {

// The full gradient of a param, in memory of the caller.
struct GivenGradient {
  size_t param = 0;  // index in the unit
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  bool on_device = false;
};

// A step of a reduction: along the shard axis, between replicas, or the exchange of complete sums.
enum class Step { shards, replicas, sums };

class GradientMemory {
 public:
  virtual ~GradientMemory() = default;

  virtual bool on_device() const = 0;
  virtual Place& place() = 0;

  // ---- A micro-batch; the gradient is `filling`.
  // Adds gradients to the bucket. The work queued on `stream` so far writes those on the device,
  // which must not change until added() returns true. Those on the host have been read when this
  // returns. After an error nothing counts as given. After MERON_E_NO_MEMORY it may be called
  // again.
  virtual Status add(std::span<const GivenGradient> gradients, void* stream) = 0;
  // True if the bucket has all gradients that were given. Never waits.
  virtual Result<bool> added() = 0;
  // Zeroes the gradients that were not given.
  virtual Status complete() = 0;

  // ---- A reduction.
  // Allocates all memory that the reduction needs, before peers rely on it. After MERON_E_NO_MEMORY
  // the gradient is unchanged.
  virtual Status prepare(const Pass& pass) = 0;
  // Buffers of a flat. bucket: all elements. sum: Flat::summed. row: the sum of the shard axis'
  // buckets over Flat::row (if Pass::direct, replicas read the bucket instead). encoded: a
  // replica's part of that row, encoded. encoded_sum: this rank's part of the sum, encoded.
  virtual std::byte* bucket(size_t flat) const = 0;
  virtual float* sum(size_t flat) const = 0;
  virtual float* row(size_t flat) const = 0;
  virtual std::byte* encoded(size_t flat, int replica) const = 0;
  virtual std::byte* encoded_sum(size_t flat) const = 0;
  // The codec's feedback for Flat::row in f32, or null if none is kept.
  virtual float* residual(size_t flat) const = 0;
  // Returns the address at which to receive a member's bytes, or null if the exchange may choose.
  virtual std::byte* room(const Pass& pass, Step step, size_t flat, int member) const = 0;
  // Zeroes the sum of squares if it is wanted. Place adds to it, and Gradient::squares has it once
  // settled() has returned true.
  virtual Status begin_squares(bool wanted) = 0;
  Squares* squares() { return squares_wanted_ ? &squares_ : nullptr; }
  // Releases the bucket and the memory of prepare(), which this rank no longer reads.
  virtual void release_bucket() = 0;
  // Ends the work: all of it has been queued.
  virtual Status end_work() = 0;
  // True if the queued work is done.
  virtual Result<bool> settled() = 0;

  // ---- The sums in host memory, for the caller to read and write.
  virtual Result<float*> show(size_t flat) = 0;
  // Copies sums that the host was shown back to the device, as the caller may have changed them.
  virtual Status take_back() = 0;

  // ---- The codec's feedback for elements `range` of the flat, within its row. Both functions wait
  // until the device has done its work.
  virtual Status read_feedback(size_t flat, const Range& range, std::byte* out) const = 0;
  virtual Status write_feedback(size_t flat, const Range& range, const std::byte* data) = 0;

 protected:
  Squares squares_;
  bool squares_wanted_ = false;
};

}  // namespace meron
