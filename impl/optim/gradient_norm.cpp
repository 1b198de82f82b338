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
  unit.gradient().squares_known = true;
  return Ok{};
}

// Publishes the exact sum of squares of this rank's shards in the shared segment: the total does
// not depend on how the gradients are sharded, so every world size and plan gets the same bits.
Status StepOperation::share_norm() {
  static_assert(sizeof(kernels::ExactSum) + sizeof(NonFinitePlace) <= kNormBytes);
  kernels::ExactSum squares;
  for (const auto& unit : optimizer_->units_) {
    if (!unit->gradient().squares_known) MERON_TRY(take_squares(*unit));
    squares.merge(unit->gradient().squares);
  }
  MemberBlock& own = channel_.own();
  const uint64_t last = std::max(own.norm_step[0].load(std::memory_order_relaxed),
                                 own.norm_step[1].load(std::memory_order_relaxed));
  norm_number_ = last + 1;
  NonFinitePlace place;
  const bool encoded =
      std::any_of(optimizer_->units_.begin(), optimizer_->units_.end(),
                  [](const auto& unit) { return unit->gradient().nonfinite.has_value(); });
  if (encoded || squares.nonfinite()) place = find_nonfinite(optimizer_->units_);
  std::byte* const shared = own.norm[norm_number_ % 2].data();
  std::memcpy(shared, &squares, sizeof(squares));
  std::memcpy(shared + sizeof(squares), &place, sizeof(place));
  channel_.share(shared, sizeof(squares) + sizeof(place));
  channel_.announce(own.norm_step[norm_number_ % 2], norm_number_);
  channel_.transport().ring();
  return Ok{};
}

Result<bool> StepOperation::agree_on_norm() {
  const size_t half = norm_number_ % 2;
  kernels::ExactSum total;
  for (int m = 0; m < channel_.size(); ++m) {
    if (channel_.member(m).norm_step[half].load(std::memory_order_seq_cst) < norm_number_) {
      return false;
    }
  }
  for (int m = 0; m < channel_.size(); ++m) {
    kernels::ExactSum squares;
    std::memcpy(&squares, channel_.member(m).norm[half].data(), sizeof(squares));
    total.merge(squares);
  }
  const double norm = std::sqrt(total.value());
  optimizer_->norm_ = norm;
  norm_known_ = true;
  if (!std::isfinite(norm)) return skip(norm);
  const double max_norm = optimizer_->options_.max_norm;
  // As torch.nn.utils.clip_grad_norm_: the small term keeps a zero norm from dividing.
  const double clip = max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  for (const auto& unit : optimizer_->units_) MERON_TRY(unit->release_version());
  numbers_ = optimizer_->count_step(groups_, clip);
  channel_.transport().ring();
  return true;
}

}  // namespace meron
