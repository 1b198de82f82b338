// SPDX-License-Identifier: Apache-2.0
// A unit's gradient on tier device: micro-batches are packed into buckets there, and summed in f32
// by the device, with the bits of the host's sums.
//
// All work is asked of DeviceSide::work(), so that buckets, sums and the optimizer's step follow
// each other without a wait. The host waits for the squares of a complete sum only. Several ranks
// send each other the rows of their buckets (DeviceGroup), and each sums its own, in rank order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/operation.h"
#include "param/device_group.h"
#include "param/device_side.h"
#include "param/reduce.h"
#include "param/unit.h"
#include "quant/device_wire.h"

namespace meron {

// The whole gradient of a param.
struct GivenGradient {
  size_t param = 0;  // of the unit
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  bool on_device = false;
};

class ResidentGradient {
 public:
  // Memory for the sums. MERON_E_NO_MEMORY, MERON_E_DEVICE.
  static Result<std::unique_ptr<ResidentGradient>> create(Unit& unit);
  ~ResidentGradient();
  ResidentGradient(const ResidentGradient&) = delete;
  ResidentGradient& operator=(const ResidentGradient&) = delete;

  // The unit is `filling`. What was asked of `stream` so far has written the gradients on the
  // device, which must stay as they are until the sum has ended; those on the host have been read.
  Status add(std::span<const GivenGradient> gradients, void* stream);
  // Takes all memory that sum() needs, before peers rely on it. MERON_E_NO_MEMORY: nothing was
  // lost.
  Status prepare(const ReduceOptions& options, bool ends);
  // Sums what was added; params without a gradient count as zeros. `ends`: nothing was added, and
  // replicas exchange what was summed before. `sequence`: of the call.
  Status sum(const ReduceOptions& options, bool ends, uint64_t sequence, Deadline deadline);
  // The sum is complete without another micro-batch.
  Status finish(const ReduceOptions& options);
  // Whether what was asked for last is done; Unit::squares are known then, where they were taken.
  Result<bool> come();

  // What encoding has lost so far counts for nothing.
  Status drop_feedback();
  bool keeps_feedback(size_t flat) const { return static_cast<bool>(residuals_[flat]); }
  // Copies it out and in: elements `range` of the flat, within its row. They wait for the device.
  Status read_feedback(size_t flat, const Range& range, std::byte* out) const;
  Status write_feedback(size_t flat, const Range& range, const std::byte* data);

  // Of a flat's `summed`, for work().
  float* data(size_t flat) const { return reinterpret_cast<float*>(sums_[flat].data()); }
  // For the host to read and to change, as Flat::sum; waits for the copy.
  Status show();
  // What the host may have changed is the device's again.
  Status take_back();

 private:
  explicit ResidentGradient(Unit& unit);
  DeviceSide& side() const { return *unit_.rank().device; }
  // What one sum is made by.
  struct Pass {
    ReduceOptions options;
    bool ends = false;
    bool between = false;   // replicas exchange
    bool direct = false;    // and what they exchange is buckets
    uint64_t exchange = 0;  // its number, between replicas
    uint64_t sequence = 0;
    Deadline deadline;
  };
  Pass pass_of(const ReduceOptions& options, bool ends) const;
  Status take(std::vector<DeviceMemory>& rooms, size_t flat, uint64_t bytes, const char* what);
  // Of the rows of the shard axis, into `to`.
  Status sum_rows(const Pass& pass);
  // Of the replicas' parts of the row; shared, where each needs the whole row.
  Status sum_parts(const Pass& pass);
  Status share_parts(const Pass& pass);
  Status share_encoded(const Pass& pass);
  Status exchange_rows(const Pass& pass);
  Status exchange_parts(const Pass& pass);
  void count(const Channel& axis, int peer, uint64_t bytes) const;  // that come from a peer
  std::byte* row_sum(size_t flat) const;
  // By the codec of gradients: whether there is one; what a part has on the wire, and how far parts
  // lie apart here.
  bool coded() const;
  DeviceWire wire() const;
  uint64_t wire_bytes_of(uint64_t elements) const;
  uint64_t encoded_stride(size_t flat) const;
  Status encode_rows(const Pass& pass);
  Status take_parts(const Pass& pass, size_t flat);
  Range part_of_replica(size_t flat, int replica) const;
  const std::byte* part_for(const Pass& pass, size_t flat, int replica) const;
  std::byte* received_part(const Pass& pass, size_t flat, int replica) const;
  DeviceGroup::Call call_of(const Pass& pass) const;
  // The row that replicas exchange without a codec, and its type.
  const std::byte* exchanged_row(const Pass& pass, size_t flat) const;
  DType exchanged_type(const Pass& pass, size_t flat) const;
  float scale(const ReduceOptions& options) const;
  Status pack(std::span<const GivenGradient> gradients, void* stream);
  void hold(uint64_t bytes);  // counts them
  std::byte* feedback_from(size_t flat, uint64_t element) const;
  Status open_bucket(size_t flat);
  Status zero_missing();
  Status begin_squares(const ReduceOptions& options);
  Status end_squares();

  Unit& unit_;
  std::vector<DeviceMemory> sums_,
      buckets_;  // by flat; a bucket from its first gradient to its sum
  // By flat, from prepare() to the sum: this rank's row of every peer's bucket; the sum of the row,
  // where only parts of it stay; with a codec, the row encoded part by part; this rank's part of
  // every replica's row.
  std::vector<DeviceMemory> rows_, row_sums_, encoded_, parts_;
  std::vector<DeviceMemory> residuals_;  // by flat: f32, of the row, what encoding has lost so far
  std::vector<DeviceMemory> copies_;     // of gradients on the host, until the sum is asked for
  uint64_t held_ = 0;                    // bytes of sums and residuals, as they are counted
  DeviceMemory squares_;                 // MERON_SQUARES_BYTES
  Buffer squares_here_;                  // the same, on the host
  std::vector<Buffer> shown_;            // by flat; empty until the host asks
  bool showing_ = false;
  bool squares_wanted_ = false;
  DeviceEvent done_;
};

// A micro-batch, or with FinishOperation the end of an accumulation, until the device has done it.
class ResidentReduceOperation final : public Operation {
 public:
  // The unit is `filling` and its gradient prepared; the call has been posted.
  static Result<std::shared_ptr<ResidentReduceOperation>> begin(std::shared_ptr<Unit> unit,
                                                                const ReduceOptions& options,
                                                                bool ends, uint64_t sequence,
                                                                Deadline deadline);
  Result<bool> advance() override;
  std::vector<int> missing() const override { return channel_.not_begun(sequence()); }
  std::string describe() const override;

 private:
  ResidentReduceOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options,
                          Deadline deadline);

  std::shared_ptr<Unit> unit_;
  ReduceOptions options_;
};

}  // namespace meron
