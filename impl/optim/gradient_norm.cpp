// SPDX-License-Identifier: Apache-2.0
// The global norm of the gradients that a step begins with.
#include <cmath>

#include "optim/norm_exchange.h"
#include "optim/step.h"

namespace meron {

// Shares the squares of this rank's shards.
Status StepOperation::share_norm() {
  MERON_ASSIGN(OwnSquares own, own_squares(optimizer_->units_));
  const double largest = std::sqrt(own.squares.value());
  for (const auto& unit : optimizer_->states_) {
    for (const auto& states : unit) {
      if (states && states->may_overflow(given_.groups, largest)) own.place.risky = 1;
    }
  }
  norm_.publish(own.squares, own.place);
  return Ok{};
}

// A step whose norm is ordinary ends here. If it is not finite, the ranks look for a value that
// caused it, and if some rank's numbers are nearly infinite, they compute the step without storing
// it. Then they agree once more.
Result<bool> StepOperation::agree_on_norm() {
  if (!norm_.all_published()) return false;
  if (agreement_ == Agreement::on_cause) {
    agreement_ = Agreement::reached;
    return skip(optimizer_->norm_);
  }
  if (agreement_ == Agreement::on_overflow) {
    std::string found = norm_.places(optimizer_->units_);
    if (!found.empty()) return refuse_overflow(std::move(found));
    return accept();
  }
  bool risky = false;
  for (int m = 0; m < channel_.size(); ++m) risky = risky || norm_.place_of(m).risky != 0;
  const double norm = std::sqrt(norm_.total().value());
  optimizer_->norm_ = norm;
  if (!std::isfinite(norm)) {
    MERON_ASSIGN(const NonFinitePlace held, find_held_overflow());
    norm_.publish({}, held.unit == NonFinitePlace::kNone ? norm_.place_of(channel_.index()) : held);
    agreement_ = Agreement::on_cause;
    return false;
  }
  numbers_ = optimizer_->next_step(given_.groups, clip_factor(norm, given_.max_norm));
  if (!risky) return accept();
  MERON_ASSIGN(const NonFinitePlace place, find_overflow());
  norm_.publish({}, place);
  agreement_ = Agreement::on_overflow;
  return false;
}

// The first value of this rank that an earlier step made infinite, on a device.
Result<NonFinitePlace> StepOperation::find_held_overflow() {
  NonFinitePlace place;
  for (size_t u = 0; u < optimizer_->units_.size(); ++u) {
    for (size_t f = 0; f < optimizer_->states_[u].size(); ++f) {
      const auto& states = optimizer_->states_[u][f];
      if (!states) continue;
      Result<std::optional<uint64_t>> found = states->find_held_overflow();
      if (!found.ok()) return fail(std::move(found).error());
      if (!*found) continue;
      place = place_in(*optimizer_->units_[u], f, **found);
      place.unit = static_cast<uint32_t>(u);
      place.kind = NonFinitePlace::Kind::held;
      return place;
    }
  }
  return place;
}

// The first place that this rank's part of the step would make infinite.
Result<NonFinitePlace> StepOperation::find_overflow() {
  NonFinitePlace place;
  for (size_t u = 0; u < optimizer_->units_.size(); ++u) {
    for (size_t f = 0; f < optimizer_->states_[u].size(); ++f) {
      const auto& states = optimizer_->states_[u][f];
      if (!states) continue;
      Result<std::optional<Overflow>> found = states->find_overflow(numbers_);
      if (!found.ok()) return fail(std::move(found).error());
      if (!*found) continue;
      place = place_in(*optimizer_->units_[u], f, (*found)->element);
      place.unit = static_cast<uint32_t>(u);
      place.kind = (*found)->in_value ? NonFinitePlace::Kind::value : NonFinitePlace::Kind::state;
      return place;
    }
  }
  return place;
}

Result<bool> StepOperation::accept() {
  agreement_ = Agreement::reached;
  for (const auto& unit : optimizer_->units_) MERON_TRY(unit->release_version());
  optimizer_->count_step();
  channel_.transport().ring();
  return true;
}

}  // namespace meron
