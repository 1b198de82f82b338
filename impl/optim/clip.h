// SPDX-License-Identifier: Apache-2.0
// The exact global norm of reduced gradients, and their clipping, for an optimizer of the trainer's
// own. The norm and the scaled gradients have the bits of a step's.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "optim/norm_exchange.h"
#include "unit/unit.h"

namespace meron {

class ClipOperation final : public Operation {
 public:
  // MERON_E_STATE, which names the unit, unless every unit's gradient is reduced and in use by no
  // step.
  static Status check(std::span<const std::shared_ptr<Unit>> units);
  // check() has passed. Takes the memory that the operation needs. The caller has the turn.
  // `max_norm`: 0 only measures.
  static Result<std::shared_ptr<ClipOperation>> prepare(std::vector<std::shared_ptr<Unit>> units,
                                                        double max_norm, Deadline deadline);
  // The call has been posted.
  void begin(uint64_t sequence);

  Result<bool> advance() override;
  std::vector<int> missing() const override { return norm_.missing(); }
  std::string describe() const override { return "clipping of gradients"; }
  // As steps, which use the same slots.
  bool staged() const override { return true; }

  // Before clipping. Once it has ended.
  double norm() const { return total_; }

 private:
  ClipOperation(std::vector<std::shared_ptr<Unit>> units, double max_norm, Deadline deadline);
  Status scale(float factor);
  void end();
  Error fail(Error error);

  std::vector<std::shared_ptr<Unit>> units_;
  const double max_norm_;
  NormExchange norm_;
  double total_ = 0.0;
};

}  // namespace meron
