// SPDX-License-Identifier: Apache-2.0
// Where a unit's gradient lies: buckets that micro-batches are written to, the f32 sums of what
// this rank sums, and what encoding has lost so far. on_host.h and on_device.h are its two
// kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gradient/pass.h"
#include "place/place.h"

namespace meron {

// The whole gradient of a param, in memory of the caller.
struct GivenGradient {
  size_t param = 0;  // of the unit
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  bool on_device = false;
};

// Between which ranks bytes move, and when: along the shard axis, or between replicas.
enum class Step { shards, replicas, sums };

class GradientMemory {
 public:
  virtual ~GradientMemory() = default;

  virtual bool on_device() const = 0;
  virtual Place& place() = 0;

  // ---- A micro-batch; the gradient is `filling`.
  // What was asked of `stream` so far has written gradients on the device, which must stay as they
  // are until added() says true; those on the host have been read when this returns. After an error
  // the bucket is as if nothing had been given; MERON_E_NO_MEMORY may be tried again.
  virtual Status add(std::span<const GivenGradient> gradients, void* stream) = 0;
  // Whether the bucket has all that was given; looks, and never waits.
  virtual Result<bool> added() = 0;
  // Gradients that were not given count as zero.
  virtual Status complete() = 0;

  // ---- A reduction.
  // Takes all memory that it needs, before peers rely on it. MERON_E_NO_MEMORY: nothing was lost.
  virtual Status prepare(const Pass& pass) = 0;
  // Of a flat: the bucket, whole; the sum, of Flat::summed; the sum of the shard axis' buckets, of
  // Flat::row (for Pass::direct the bucket itself, in its own type); a part of that row, or this
  // rank's part of the sum, as the codec encodes it.
  virtual std::byte* bucket(size_t flat) const = 0;
  virtual float* sum(size_t flat) const = 0;
  virtual float* row(size_t flat) const = 0;
  virtual std::byte* encoded(size_t flat, int replica) const = 0;
  virtual std::byte* encoded_sum(size_t flat) const = 0;
  // f32, of Flat::row: what encoding has lost so far; null where nothing is kept.
  virtual float* residual(size_t flat) const = 0;
  // Where what comes of a member of the step's axis is to lie; null: anywhere.
  virtual std::byte* room(const Pass& pass, Step step, size_t flat, int member) const = 0;
  // Squares begin at zero, where they are wanted: they are added up by Place, and known once the
  // work asked for is settled.
  virtual Status begin_squares(bool wanted) = 0;
  Squares* squares() { return squares_wanted_ ? &squares_ : nullptr; }
  // Nobody reads the bucket any more, nor what was taken by prepare().
  virtual void release_bucket() = 0;
  // All work has been asked for. Whether it is done: Gradient::squares are known then.
  virtual Status end_work() = 0;
  virtual Result<bool> settled() = 0;

  // ---- The sums, as the host reads and writes them.
  virtual Result<float*> show(size_t flat) = 0;
  // What the host may have changed counts from here on.
  virtual Status take_back() = 0;

  // ---- What encoding has lost so far: elements `range` of the flat, within its row. They wait for
  // the place's work.
  virtual Status read_feedback(size_t flat, const Range& range, std::byte* out) const = 0;
  virtual Status write_feedback(size_t flat, const Range& range, const std::byte* data) = 0;

 protected:
  Squares squares_;
  bool squares_wanted_ = false;
};

}  // namespace meron
