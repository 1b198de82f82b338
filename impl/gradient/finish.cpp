// SPDX-License-Identifier: Apache-2.0
#include "gradient/finish.h"

#include <fmt/format.h>

#include <utility>

namespace meron {

Status FinishOperation::check(const Unit& unit) {
  const auto refuse = [&](const char* what, const char* advice) {
    return Error(MERON_E_STATE, fmt::format(fmt::runtime(what), unit.name()), advice)
        .on(unit.name());
  };
  if (!unit.trainable()) {
    return refuse("all params of unit '{}' are frozen",
                  "register params without `frozen` to train them");
  }
  const auto ends_already = [&] {
    return refuse("the accumulation of unit '{}' ends already",
                  "end it once, after all micro-batches, none of which was at the boundary");
  };
  const Gradient& gradient = unit.gradient();
  if (gradient.finishing) return ends_already();
  switch (gradient.state()) {
    case GradientState::filling:
      return refuse("a gradient of unit '{}' was written and not reduced",
                    "reduce it, at the accumulation boundary if it is the last");
    case GradientState::ready:
      return refuse("the reduced gradient of unit '{}' was not used",
                    "step the optimizer, or discard the gradient, before the next one");
    case GradientState::reducing:
      if (!gradient.at_boundary) return Ok{};
      return ends_already();
    case GradientState::empty:
    case GradientState::partial:
      break;
  }
  return Ok{};
}

FinishOperation::FinishOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options,
                                 Deadline deadline)
    : Operation(unit->channel(), deadline),
      unit_(std::move(unit)),
      gradient_(unit_->gradient()),
      options_(options) {
  gradient_.finishing = true;
}

// Scales the sums of the range that this rank updates. If that is more than its part, other ranks
// have the same sums, so each rank counts only the squares of its part.
Status FinishOperation::scale_sums() {
  GradientMemory& memory = gradient_.memory();
  MERON_TRY(memory.begin_squares(unit_->has_optimizer));
  for (size_t f = 0; f < unit_->flats().size(); ++f) {
    const Flat& flat = unit_->flats()[f];
    if (!flat.desc.trainable) continue;
    const auto scale = [&](const Range& range, Squares* squares) -> Status {
      if (range.size() == 0) return Ok{};
      Sum sum;
      sum.out = memory.sum(f) + (range.begin - flat.summed.begin);
      sum.accumulate = gradient_.started;
      sum.scale = options_.scale(unit_->channel().size());
      sum.count = range.size();
      sum.squares = squares;
      return memory.place().sum(sum);
    };
    if (flat.owned.size() == 0) continue;
    MERON_TRY(scale({flat.owned.begin, flat.part.begin}, nullptr));
    MERON_TRY(scale(flat.part, memory.squares()));
    MERON_TRY(scale({flat.part.end, flat.owned.end}, nullptr));
  }
  return memory.end_work();
}

Result<bool> FinishOperation::advance() {
  if (gradient_.state() == GradientState::reducing) return false;
  const auto scaled = [&]() -> Result<bool> {
    if (!std::exchange(scaled_, true)) MERON_TRY(scale_sums());
    return gradient_.memory().settled();
  };
  Result<bool> settled = scaled();
  if (!settled.ok()) return channel_.fail(std::move(settled).error().on(unit_->name()));
  if (!*settled) return false;
  gradient_.started = false;
  gradient_.finishing = false;
  MERON_TRY(gradient_.enter(GradientState::ready));
  return true;
}

std::vector<int> FinishOperation::missing() const {
  const auto reduction = gradient_.reduction.lock();
  return reduction ? reduction->missing() : std::vector<int>{};
}

std::string FinishOperation::describe() const {
  return fmt::format("end of the accumulation of unit '{}'", unit_->name());
}

}  // namespace meron
