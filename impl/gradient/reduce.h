// SPDX-License-Identifier: Apache-2.0
// A reduction, on the host and on devices alike: along the shard axis each rank sums, in f32 and in
// rank order, its row of all buckets (without replicas: its shard). With replicas, these then
// exchange their rows: each sums its part of them, in the replicas' order. If other ranks need a
// sum too, they then receive it. Replicas may encode the gradients that they exchange (qgZ of
// ZeRO++, arXiv 2306.10209). Each rank keeps the error of its encoding as feedback (LoCo, arXiv
// 2407.04480).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradient/exchange.h"
#include "gradient/gradient.h"
#include "rank/staging.h"

namespace meron {

class ReduceOperation final : public Operation {
  struct Begun {};  // only begin() has one

 public:
  // Returns the channel that the call is posted to.
  static Channel& channel_for(const Unit& unit, const ReduceOptions& options);
  // The gradient is `filling`, its memory prepared for `pass`; the call has been posted to
  // channel_for().
  static Result<std::shared_ptr<ReduceOperation>> begin(std::shared_ptr<Unit> unit,
                                                        const Pass& pass, uint64_t sequence,
                                                        Deadline deadline);
  ReduceOperation(Begun by, std::shared_ptr<Unit> unit, const Pass& pass, uint64_t sequence,
                  Deadline deadline);

  Result<bool> advance() override;
  std::vector<int> missing() const override { return exchange_->missing(); }
  std::string describe() const override;
  bool begins_alone() const override { return true; }

 private:
  // adding: waits until the bucket has all gradients of the micro-batch. shards, replicas, sums:
  // wait until the peers' bytes of the step can be read. settling: waits until the work is done.
  // parting: waits until no peer reads this rank's sum.
  enum class Stage { adding, shards, replicas, sums, settling, parting };

  Result<bool> move();
  Status begin_work();
  Status after_shards();
  Status after_replicas();
  Status end_work();
  Result<bool> end();

  Status begin_shards();
  Status sum_shards();
  Status begin_replicas();
  Status encode_rows();
  std::optional<FlatElement> first_nonfinite_of_rows() const;
  Status sum_replicas();
  Status begin_sums();
  Status encode_sums();
  Status take_sums();

  // Returns a step with one piece per trainable flat and peer of the axis. `fill` sets all of a
  // piece except its flat and member.
  ExchangeStep step_along(Step step, Channel& axis,
                          const std::function<void(ExchangePiece&)>& fill);
  Range part_of_replica(const Flat& flat, int replica) const;
  bool coded() const;
  uint64_t bytes_of_part(size_t flat, const Range& part) const;
  std::byte* row_from(size_t flat, uint64_t element) const;
  DType row_type(size_t flat) const;
  float* sum_from(size_t flat, uint64_t element) const;
  std::vector<const void*> inputs(const Channel& axis, size_t flat, const void* own) const;
  void count(const Channel& axis, int member, uint64_t bytes) const;
  DType bucket_type(const Flat& flat, int shard) const;
  Result<DType> make_alike(size_t flat, std::vector<const void*>* buckets,
                           std::vector<std::shared_ptr<Staging>>* copies);

  std::shared_ptr<Unit> unit_;
  Gradient& gradient_;
  GradientMemory& memory_;
  const Pass pass_;
  uint64_t reduction_ = 0, number_ = 0;  // of the reduction, and of the exchange between replicas
  Stage stage_ = Stage::adding;
  bool completed_ = false;
  std::unique_ptr<GradientExchange> exchange_;
};

}  // namespace meron
