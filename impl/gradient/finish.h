// SPDX-License-Identifier: Apache-2.0
// Ends an accumulation of sharded gradients after its last micro-batch. Each rank already has the
// sum of its part, so nothing is exchanged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradient/gradient.h"

namespace meron {

class FinishOperation final : public Operation {
 public:
  // MERON_E_STATE if the unit's accumulation cannot end now. The error says what to do first.
  static Status check(const Unit& unit);

  // check() has passed and the call has been posted. Until the operation has ended, the unit
  // accepts no other gradient (Gradient::finishing).
  FinishOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options, Deadline deadline);

  // Waits for the reduction of the last micro-batch, if one is in progress.
  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override;

 private:
  Status scale_sums();

  std::shared_ptr<Unit> unit_;
  Gradient& gradient_;
  const ReduceOptions options_;
  bool scaled_ = false;
};

}  // namespace meron
