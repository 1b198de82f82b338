// SPDX-License-Identifier: Apache-2.0
// A reduction: each rank reads its part of every rank's bucket in place and sums in f32, in rank
// order. Where the optimizer is replicated, ranks then read each other's sums (all-reduce).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "param/staging.h"
#include "param/unit.h"
#include "transport/operation.h"

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

class ReduceOperation final : public Operation {
 public:
  // The unit is `filling`, its bucket complete; the call has been posted.
  static Result<std::shared_ptr<ReduceOperation>> begin(std::shared_ptr<Unit> unit,
                                                        const ReduceOptions& options,
                                                        Deadline deadline);

  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override;
  bool begins_alone() const override { return true; }

 private:
  enum class Stage { contributing, sharing, parting };

  ReduceOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options, Deadline deadline);
  // Where ranks share no memory: sends the parts of the bucket to their owners, and receives those
  // of this rank's own.
  Status exchange_parts();
  // The same for the sums of parts, which every rank is to have.
  void exchange_sums();
  Result<bool> advance_remote(bool shared);
  void sum();
  void fetch_sums();
  void consume();
  Status end();

  std::shared_ptr<Unit> unit_;
  ReduceOptions options_;
  uint64_t reduction_ = 0;
  bool accumulate_ = false;  // the sum already holds earlier micro-batches
  Stage stage_ = Stage::contributing;
  std::shared_ptr<Batch> batch_;
  std::vector<std::shared_ptr<Staging>> parts_;  // per flat: this rank's part, from every member
};

}  // namespace meron
