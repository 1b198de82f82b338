// SPDX-License-Identifier: Apache-2.0
#include "param/finish.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/cpu/reduce.h"
#include "param/resident_gradient.h"

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
  if (unit.finishing) return ends_already();
  switch (unit.gradient_state()) {
    case GradientState::filling:
      return refuse("a gradient of unit '{}' was written and not reduced",
                    "reduce it, at the accumulation boundary if it is the last");
    case GradientState::ready:
      return refuse("the reduced gradient of unit '{}' was not used",
                    "step the optimizer, or discard the gradient, before the next one");
    case GradientState::reducing:
      if (!unit.at_boundary) return Ok{};
      return ends_already();
    case GradientState::empty:
    case GradientState::partial:
      break;
  }
  return Ok{};
}

FinishOperation::FinishOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options,
                                 Deadline deadline)
    : Operation(unit->channel(), deadline), unit_(std::move(unit)), options_(options) {
  unit_->finishing = true;
}

Result<bool> FinishOperation::advance() {
  Unit& unit = *unit_;
  if (unit.gradient_state() == GradientState::reducing) return false;
  if (unit.resident_gradient() != nullptr) return advance_on_device();
  Rank& rank = unit.rank();
  const float scale = options_.scale(unit.channel().size());
  unit.squares = {};
  unit.squares_known = unit.has_optimizer;
  for (Flat& flat : unit.flats()) {
    if (!flat.desc.trainable || flat.owned.size() == 0) continue;
    std::vector<kernels::ExactSum> squares(static_cast<size_t>(rank.threads.threads()));
    // What this rank owns is its part, or, where the optimizer is replicated, everything: ranks
    // then have the same sums, and each counts the squares of its part.
    const auto finish = [&](const Range& range, bool counted) {
      if (range.size() == 0) return;
      const Recess recess(range.size() >= kInlineElements);
      rank.threads.for_range(range.begin, range.end, kBlock, kInlineElements,
                             [&](int thread, uint64_t begin, uint64_t end) {
                               kernels::reduce(
                                   flat.sum + (begin - flat.summed.begin), unit.sum_started,
                                   nullptr, 0, kernels::Type::f32, scale, end - begin,
                                   counted ? &squares[static_cast<size_t>(thread)] : nullptr);
                             });
    };
    finish({flat.owned.begin, flat.part.begin}, false);
    finish(flat.part, unit.has_optimizer);
    finish({flat.part.end, flat.owned.end}, false);
    for (const auto& each : squares) unit.squares.merge(each);
  }
  unit.sum_started = false;
  unit.finishing = false;
  MERON_TRY(unit.enter(GradientState::ready));
  return true;
}

Result<bool> FinishOperation::advance_on_device() {
  Unit& unit = *unit_;
  ResidentGradient& gradient = *unit.resident_gradient();
  if (!std::exchange(asked_, true)) {
    if (Status asked = gradient.finish(options_); !asked.ok()) {
      return channel_.fail(std::move(asked).error().on(unit.name()));
    }
  }
  auto come = gradient.come();
  if (!come.ok()) return channel_.fail(std::move(come).error().on(unit.name()));
  if (!*come) return false;
  unit.sum_started = false;
  unit.finishing = false;
  MERON_TRY(unit.enter(GradientState::ready));
  return true;
}

std::vector<int> FinishOperation::missing() const {
  const auto reduction = unit_->reduction.lock();
  return reduction ? reduction->missing() : std::vector<int>{};
}

std::string FinishOperation::describe() const {
  return fmt::format("end of the accumulation of unit '{}'", unit_->name());
}

}  // namespace meron
