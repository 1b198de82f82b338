// SPDX-License-Identifier: Apache-2.0
#include "gradient/local.h"

#include <fmt/format.h>

#include <utility>

namespace meron {

LocalOperation::LocalOperation(std::shared_ptr<Unit> unit, Deadline deadline)
    : Operation(unit->channel(), deadline), unit_(std::move(unit)) {}

Result<std::shared_ptr<LocalOperation>> LocalOperation::begin(std::shared_ptr<Unit> unit,
                                                              Deadline deadline) {
  auto operation = std::make_shared<LocalOperation>(std::move(unit), deadline);
  Gradient& gradient = operation->unit_->gradient();
  MERON_TRY(gradient.enter(GradientState::reducing));
  gradient.reduction = operation;
  return operation;
}

Result<bool> LocalOperation::advance() {
  Gradient& gradient = unit_->gradient();
  Result<bool> added = gradient.memory().added();
  if (!added.ok()) return channel_.fail(std::move(added).error());
  if (!*added) return false;
  MERON_TRY(gradient.enter(GradientState::partial));
  return true;
}

std::string LocalOperation::describe() const {
  return fmt::format("copy of the gradient of unit '{}' from the device", unit_->name());
}

}  // namespace meron
