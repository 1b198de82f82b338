// SPDX-License-Identifier: Apache-2.0
// A reduction: each rank reads its row (without replicas: its part) of the buckets along the shard
// axis and sums in f32, in rank order. Where the optimizer is replicated, ranks then read each
// other's sums (all-reduce). With replicas, these then exchange their rows: each sums its part of
// them, in the replicas' order, and where replicas need the whole row they read each other's parts.
// Peers that share memory are read in place; others send what is read of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "param/staging.h"
#include "param/unit.h"
#include "quant/wire.h"

namespace meron {

struct ReduceOptions {
  bool mean = true;
  bool boundary = true;
  double divisor = 1.0;

  // What a complete sum over `members` ranks is multiplied by.
  float scale(int members) const {
    return static_cast<float>(1.0 / (divisor * (mean ? static_cast<double>(members) : 1.0)));
  }
};

// Whether a micro-batch stays on the rank: whole gradients accumulate without communication.
inline bool stays_local(const Unit& unit, const ReduceOptions& options) {
  return !is_sharded(unit.rank().plan.gradient) && !options.boundary;
}

// Whether replicas exchange what a reduction sums: each time where gradients are cut over them,
// else when the accumulation ends.
inline bool between_replicas(const Unit& unit, const ReduceOptions& options) {
  if (!unit.axes().replicas()) return false;
  return options.boundary || unit.rank().plan.gradient.sharding == Sharding::world;
}

// Whether sums of rows are apart from what is accumulated, which is of parts then.
inline bool sums_apart(const Unit& unit) {
  return unit.rank().plan.gradient.sharding == Sharding::world;
}

// Of stochastic rounding, between replicas: another one for each rank, exchange, flat and part. -1
// is the part's sum.
uint64_t rounding_seed(const Unit& unit, uint64_t exchange, size_t flat, int part);

class ReduceOperation final : public Operation {
 public:
  // Where the call is to be posted.
  static Channel& channel_for(const Unit& unit, const ReduceOptions& options);
  // The unit is `filling`, its bucket complete; the call has been posted to channel_for(). Where it
  // only `ends` an accumulation, its bucket has nothing, and what replicas exchange is the sum of
  // the micro-batches before.
  static Result<std::shared_ptr<ReduceOperation>> begin(std::shared_ptr<Unit> unit,
                                                        const ReduceOptions& options, bool ends,
                                                        Deadline deadline);

  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override;
  bool begins_alone() const override { return true; }

 private:
  // downloading: gradients, from the device to the bucket. contributing: to the sum of rows.
  // exchanging: rows, between replicas. sharing: sums of parts, that all are to have. parting:
  // until nobody reads what this rank may change next.
  enum class Stage { downloading, contributing, exchanging, sharing, parting };

  ReduceOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options, bool ends,
                  Deadline deadline);
  // Ranks that share no memory with this one: sends what they read, and receives what it reads.
  Result<bool> downloaded();
  void contribute();
  Status send_buckets();
  void send_sums();
  Status send_rows();
  Status send_parts();
  Result<bool> contributed();
  Result<bool> exchanged();
  void sum_rows();
  void fetch_sums();
  // Between replicas. The f32 sum of this rank's row; where in Flat::exchange encoded parts of the
  // row, and of the sum, lie; that of a member of the group.
  float* row_sum(const Flat& flat) const;
  uint64_t encoded_part_offset(const Flat& flat, int replica) const;
  uint64_t encoded_sum_offset(const Flat& flat) const;
  const std::byte* exchange_of(int member, size_t flat) const;
  Status encode_rows();
  void sum_parts();
  void encode_sum(size_t flat);
  void fetch_parts();
  Status begin_exchange();
  Status begin_sharing();
  void consume();
  void release_bucket();
  Status end();
  bool shares() const;
  std::vector<int> near_peers() const;

  std::shared_ptr<Unit> unit_;
  ReduceOptions options_;
  bool ends_;
  uint64_t reduction_ = 0;
  uint64_t exchange_ = 0;    // number of the exchange between replicas
  bool between_ = false;     // replicas
  bool accumulate_ = false;  // the sum already holds earlier micro-batches
  Stage stage_ = Stage::contributing;
  std::shared_ptr<Batch> batch_;
  std::vector<std::shared_ptr<Staging>> received_;  // per flat: what came of every member
};

}  // namespace meron
