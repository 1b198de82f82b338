// SPDX-License-Identifier: Apache-2.0
// The global norm of the gradients that a step begins with: exact, and so with the same bits for
// every number of ranks and every plan.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gradient/gradient.h"
#include "kernels/cpu/reduce.h"
#include "optim/nonfinite.h"
#include "optim/step.h"

namespace meron {

// For a unit that was reduced before it had an optimizer.
Status StepOperation::take_squares(Unit& unit) {
  kernels::ExactSum squares;
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable || flat.part.size() == 0) continue;
    MERON_ASSIGN(float* const sum, unit.gradient().memory().show(f));
    const Recess recess(flat.part.size() >= kInlineElements);
    kernels::reduce(sum + (flat.part.begin - flat.summed.begin), true, nullptr, 0,
                    kernels::Type::f32, 1.0f, flat.part.size(), &squares);
  }
  unit.gradient().squares = squares;
  return Ok{};
}

// Publishes the exact sum of squares of this rank's shards in the shared segment: the total does
// not depend on how the gradients are sharded, so every world size and plan gets the same bits.
Status StepOperation::share_norm() {
  kernels::ExactSum squares;
  for (const auto& unit : optimizer_->units_) {
    if (!unit->gradient().squares) MERON_TRY(take_squares(*unit));
    squares.merge(*unit->gradient().squares);
  }
  NonFinitePlace place;
  const bool encoded =
      std::any_of(optimizer_->units_.begin(), optimizer_->units_.end(),
                  [](const auto& unit) { return unit->gradient().nonfinite.has_value(); });
  if (encoded || squares.nonfinite()) place = find_nonfinite(optimizer_->units_);
  const double largest = std::sqrt(squares.value());
  for (const auto& unit : optimizer_->states_) {
    for (const auto& states : unit) {
      if (states && states->may_overflow(given_.groups, largest)) place.risky = 1;
    }
  }
  publish(squares, place);
  return Ok{};
}

void StepOperation::publish(const kernels::ExactSum& squares, const NonFinitePlace& place) {
  static_assert(sizeof(kernels::ExactSum) + sizeof(NonFinitePlace) <= kNormBytes);
  MemberBlock& own = channel_.own();
  const uint64_t last = std::max(own.norm_step[0].load(std::memory_order_relaxed),
                                 own.norm_step[1].load(std::memory_order_relaxed));
  norm_number_ = last + 1;
  std::byte* const shared = own.norm[norm_number_ % 2].data();
  std::memcpy(shared, &squares, sizeof(squares));
  std::memcpy(shared + sizeof(squares), &place, sizeof(place));
  channel_.share(shared, sizeof(squares) + sizeof(place));
  channel_.announce(own.norm_step[norm_number_ % 2], norm_number_);
  channel_.transport().ring();
}

kernels::ExactSum StepOperation::squares_of(int member) const {
  kernels::ExactSum squares;
  std::memcpy(&squares, channel_.member(member).norm[norm_number_ % 2].data(), sizeof(squares));
  return squares;
}

NonFinitePlace StepOperation::place_of(int member) const {
  NonFinitePlace place;
  std::memcpy(&place,
              channel_.member(member).norm[norm_number_ % 2].data() + sizeof(kernels::ExactSum),
              sizeof(place));
  return place;
}

bool StepOperation::all_published() const {
  for (int m = 0; m < channel_.size(); ++m) {
    const auto& number = channel_.member(m).norm_step[norm_number_ % 2];
    if (number.load(std::memory_order_seq_cst) < norm_number_) return false;
  }
  return true;
}

// A step whose norm is ordinary ends here. If it is not finite, the ranks look for a value that
// caused it, and if some rank's numbers are nearly infinite, they compute the step without storing
// it. Then they agree once more.
Result<bool> StepOperation::agree_on_norm() {
  if (!all_published()) return false;
  if (agreement_ == Agreement::on_cause) {
    agreement_ = Agreement::reached;
    return skip(optimizer_->norm_);
  }
  if (agreement_ == Agreement::on_overflow) {
    if (std::string found = places(); !found.empty()) return refuse_overflow(std::move(found));
    return accept();
  }
  kernels::ExactSum total;
  bool risky = false;
  for (int m = 0; m < channel_.size(); ++m) {
    total.merge(squares_of(m));
    risky = risky || place_of(m).risky != 0;
  }
  const double norm = std::sqrt(total.value());
  optimizer_->norm_ = norm;
  if (!std::isfinite(norm)) {
    MERON_ASSIGN(const NonFinitePlace held, find_held_overflow());
    publish({}, held.unit == NonFinitePlace::kNone ? place_of(channel_.index()) : held);
    agreement_ = Agreement::on_cause;
    return false;
  }
  const double max_norm = given_.max_norm;
  // As torch.nn.utils.clip_grad_norm_: the small term keeps a zero norm from dividing.
  const double clip = max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  numbers_ = optimizer_->next_step(given_.groups, clip);
  if (!risky) return accept();
  MERON_ASSIGN(const NonFinitePlace place, find_overflow());
  publish({}, place);
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
