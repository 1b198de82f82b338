// SPDX-License-Identifier: Apache-2.0
// The end of an accumulation whose micro-batches are all in, where gradients are sharded: each rank
// has the sum of its part already, and nothing moves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradient/gradient.h"

namespace meron {

class FinishOperation final : public Operation {
 public:
  // Whether the unit has an accumulation that may end. MERON_E_STATE, with what is to be done
  // first.
  static Status check(const Unit& unit);

  // check() has passed and the call has been posted. Until this has ended the unit takes no other
  // gradient: Gradient::finishing.
  FinishOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options, Deadline deadline);

  // Waits for the last micro-batch's reduction, if that is under way.
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
