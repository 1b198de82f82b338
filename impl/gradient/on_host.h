// SPDX-License-Identifier: Apache-2.0
// A gradient in memory of the host, that peers which share it read in place.
//
// Where gradients are whole, each unit has a bucket of its own that also accumulates. Where they
// are sharded, units take buckets from the rank's ring in turn. Either way a bucket may be written
// again only when every peer has consumed the reduction that it was last read for.
//
// All of it is promised when the unit is made and real from the first gradient on: a unit that is
// only loaded, gathered or saved never takes it.
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

  // Gives it what was promised, which must be real before the state leaves `empty`. Within the
  // caller's turn; waits for no rank; may release the lock. MERON_E_NO_MEMORY: it may be called
  // again.
  Status provide();
  bool provided() const { return promised_.empty(); }
  // Makes buckets f32 if they hold earlier micro-batches and may widen. May release the lock,
  // within the caller's turn. MERON_E_NO_MEMORY: nothing has changed, and it may be called again.
  Status widen();
  void narrow();  // the way back, at the start of an accumulation
  // Every rank has detached the unit.
  void give_back();

  // Where the gradient of a param goes, in the gradient dtype. What the micro-batch has not written
  // yet is zeroed first unless `overwrite`.
  std::byte* place_of(size_t param, bool overwrite);
  // Adds (or, first in an accumulation, copies) a gradient that lies on the host. `put`: what it
  // does once the param counts as given.
  void accumulate(size_t param, const std::byte* data, DType dtype);
  void put(size_t param, const std::byte* data, DType dtype, bool first);
  bool downloads() const { return download_ != nullptr; }

  // A bucket of the ring, which the state `filling` begins with.
  void take(GradientRing::Bucket& bucket);
  // The bucket is read from here on.
  void note_reduction();
  // Whether nobody reads the bucket of a reduction any more, and who still may. `between`: replicas
  // have read it too.
  bool bucket_read(uint64_t reduction, bool between) const;
  std::vector<int> bucket_readers(uint64_t reduction, bool between) const;

  // Where peers find what they read in a step: in each rank's own arena, its begin is at the offset
  // that a word of its UnitSlot has.
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
  // bucket: the flat in the gradient dtype, valid while filling and reducing (persistent where
  // gradients are whole; `first` is then that of the first micro-batch). sum: f32, of Flat::summed.
  // exchange: behind the bucket and valid with it: f32 of the row, where gradients are cut over
  // replicas; then, with a codec, the row encoded part by part; then, where replicas need the whole
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
  std::vector<Buffer> promised_;          // of these, what is not real yet
  std::unique_ptr<Download> download_;    // that the bucket still waits for
  GradientRing::Bucket* ring_ = nullptr;  // where gradients are sharded, while filling or reducing
};

}  // namespace meron
