// SPDX-License-Identifier: Apache-2.0
// A reduction: each rank reads its part of every rank's bucket in place and sums in f32, in rank
// order. Where the optimizer is replicated, ranks then read each other's sums (all-reduce).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "param/unit.h"
#include "transport/operation.h"

namespace meron {

struct ReduceOptions {
  bool mean = true;
  bool boundary = true;
  double divisor = 1.0;
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

 private:
  enum class Stage { contributing, sharing, parting };

  ReduceOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options, Deadline deadline);
  void sum();
  void fetch_sums();
  void consume();
  Status end();

  std::shared_ptr<Unit> unit_;
  ReduceOptions options_;
  uint64_t reduction_ = 0;
  bool accumulate_ = false;  // the sum already holds earlier micro-batches
  Stage stage_ = Stage::contributing;
};

}  // namespace meron
