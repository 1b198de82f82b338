// SPDX-License-Identifier: Apache-2.0
// A gradient in host memory. Local peers read it in place.
//
// If gradients are not sharded, each unit has its own bucket, which also accumulates. If they are
// sharded, units take buckets from the rank's ring in turn. Either way a bucket may be written
// again only when every peer has consumed the last reduction that read it.
//
// A unit reserves memory when it is created and populates it at its first gradient. A unit that is
// only loaded, gathered or saved populates none, except for the codec's feedback.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gradient/download.h"
#include "gradient/gradient.h"

namespace meron {

class GradientOnHost final : public GradientMemory {
 public:
  static Result<std::unique_ptr<GradientOnHost>> create(Gradient& gradient);
  explicit GradientOnHost(Gradient& gradient);
  ~GradientOnHost() override;

  // Populates the reserved memory. Required before the state leaves `empty`. Called within the
  // caller's turn. Waits for no rank and may release the lock. After MERON_E_NO_MEMORY it may be
  // called again.
  Status provide();
  bool provided() const { return promised_.empty(); }
  // Converts buckets to f32 if they hold earlier micro-batches and may widen. May release the lock,
  // within the caller's turn. After MERON_E_NO_MEMORY the values are unchanged, and it may be
  // called again.
  Status widen();
  void narrow();  // reverts widen(), at the start of an accumulation
  // Releases all memory. Every rank has detached the unit.
  void give_back();

  // Returns the address of a param's gradient in the bucket and marks it as given. If
  // `overwrite` is false and the bucket has nothing of it yet, zeroes it.
  std::byte* place_of(size_t param, bool overwrite);
  // Adds a gradient in host memory, or copies it if it is the first of an accumulation. put() does
  // the same for a param that is already marked as given.
  void accumulate(size_t param, const std::byte* data, DType dtype);
  void put(size_t param, const std::byte* data, DType dtype, bool first);
  bool downloads() const { return download_ != nullptr; }

  // Takes a bucket of the ring, just before the state becomes `filling`.
  void take(GradientRing::Bucket& bucket);
  // Notes the reduction that reads the bucket from now on.
  void note_reduction();
  // True if all local peers have read the bucket of a reduction. `between`: replicas read it too.
  bool bucket_read(uint64_t reduction, bool between) const;
  // Members that may still read it.
  std::vector<int> bucket_readers(uint64_t reduction, bool between) const;

  // The region that peers read in a step. In each rank's arena it begins at the offset that a word
  // of that rank's UnitSlot holds.
  struct Region {
    const std::byte* begin = nullptr;
    const std::atomic<uint64_t>& (*offset)(const UnitSlot& slot, uint64_t reduction, size_t flat);
  };
  Region region_of(Step step, size_t flat, const std::byte* data) const;

  bool on_device() const override { return false; }
  Place& place() override { return place_; }
  Status add(std::span<const GivenGradient> gradients, void* stream) override;
  Result<bool> added() override;
  Status complete() override;
  Status prepare(const Pass& /*pass*/) override { return Ok{}; }
  std::byte* bucket(size_t flat) const override { return flats_[flat].bucket; }
  float* sum(size_t flat) const override { return flats_[flat].sum; }
  float* row(size_t flat) const override;
  std::byte* encoded(size_t flat, int replica) const override;
  std::byte* encoded_sum(size_t flat) const override;
  float* residual(size_t flat) const override { return flats_[flat].residual; }
  std::byte* room(const Pass&, Step, size_t, int) const override { return nullptr; }
  Status begin_squares(bool wanted) override;
  void release_bucket() override;
  Status end_work() override { return Ok{}; }
  Result<bool> settled() override;
  Result<float*> show(size_t flat) override { return flats_[flat].sum; }
  Status take_back() override { return Ok{}; }
  Status read_feedback(size_t flat, const Range& range, std::byte* out) const override;
  Status write_feedback(size_t flat, const Range& range, const std::byte* data) override;

 private:
  // bucket: the flat in the gradient dtype, valid while filling and reducing. If gradients are not
  // sharded it persists, and `first` is the bucket of the first micro-batch. sum: Flat::summed in
  // f32. exchange: valid with the bucket. It holds the row in f32 if gradients are sharded over
  // replicas; then, with a codec, the row encoded part by part; then, if replicas need the full
  // row, this rank's part of the sum encoded.
  struct Buffers {
    std::byte* bucket = nullptr;
    Buffer first;
    float* sum = nullptr;
    std::byte* exchange = nullptr;
    float* residual = nullptr;
  };

  Unit& unit() const { return gradient_.unit(); }
  Status reserve();
  Status reserve_whole(size_t flat, uint64_t exchange);
  Result<Buffer> promise(uint64_t bytes, const char* what, uint64_t room = 0);
  bool widens_in_place(const Flat& flat) const;
  void move_bucket(size_t flat, std::byte* to, uint64_t offset);
  void zero_padding();
  void stage(size_t flat, const Param& param, const std::byte* data);
  uint64_t encoded_begin(size_t flat) const;

  Gradient& gradient_;
  PlaceOnHost place_;
  std::vector<Buffers> flats_;
  std::vector<Buffer> buffers_;           // in the arena
  std::vector<Buffer> promised_;          // those of buffers_ that are not populated yet
  std::unique_ptr<Download> download_;    // in progress, into the bucket
  GradientRing::Bucket* ring_ = nullptr;  // if gradients are sharded, while filling or reducing
};

}  // namespace meron
