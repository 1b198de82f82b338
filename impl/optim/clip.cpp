// SPDX-License-Identifier: Apache-2.0
#include "optim/clip.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "gradient/gradient.h"
#include "kernels/cpu/reduce.h"

namespace meron {

Status ClipOperation::check(std::span<const std::shared_ptr<Unit>> units) {
  for (const auto& unit : units) {
    if (unit->stepping) {
      return Error(MERON_E_STATE,
                   fmt::format("the gradient of unit '{}' is in use by a step", unit->name()),
                   "wait for the step")
          .on(unit->name());
    }
    MERON_TRY(check_reduced(*unit));
  }
  return Ok{};
}

ClipOperation::ClipOperation(std::vector<std::shared_ptr<Unit>> units, double max_norm,
                             Deadline deadline)
    : Operation(units.front()->channel(), deadline),
      units_(std::move(units)),
      max_norm_(max_norm),
      norm_(channel_) {}

Result<std::shared_ptr<ClipOperation>> ClipOperation::prepare(
    std::vector<std::shared_ptr<Unit>> units, double max_norm, Deadline deadline) {
  for (const auto& unit : units) {
    GradientMemory& memory = unit->gradient().memory();
    if (!memory.on_device()) continue;
    for (size_t f = 0; f < unit->flats().size(); ++f) {
      if (unit->flats()[f].desc.trainable) MERON_TRY(memory.show(f));
    }
  }
  return std::shared_ptr<ClipOperation>(new ClipOperation(std::move(units), max_norm, deadline));
}

void ClipOperation::begin(uint64_t sequence) {
  set_sequence(sequence);
  for (const auto& unit : units_) ++unit->gradient().users.clips;
}

// The caller may write through a view that it took before: whoever needs the squares takes them
// anew.
void ClipOperation::end() {
  for (const auto& unit : units_) {
    --unit->gradient().users.clips;
    unit->gradient().squares.reset();
  }
  units_.clear();
}

// Peers have clipped, or will.
Error ClipOperation::fail(Error error) {
  return channel_.fail(std::move(error).during("gradient_clip"));
}

Result<bool> ClipOperation::advance() {
  if (!norm_.published()) {
    Result<OwnSquares> own = own_squares(units_);
    if (!own.ok()) return fail(std::move(own).error());
    norm_.publish(own->squares, own->place);
  }
  if (!norm_.all_published()) return false;
  total_ = std::sqrt(norm_.total().value());
  if (!std::isfinite(total_)) {
    const std::string text = nonfinite_text(total_, norm_.places(units_));
    end();
    return Error(MERON_E_NONFINITE, text,
                 "no gradient was changed, on any rank: discard them on all ranks, and skip this "
                 "step or lower the learning rate or loss scale")
        .during("gradient_clip");
  }
  const double factor = clip_factor(total_, max_norm_);
  if (factor < 1.0) {
    Status scaled = scale(static_cast<float>(factor));
    if (!scaled.ok()) return fail(std::move(scaled).error());
  }
  end();
  return true;
}

// All that reduced_view shows. The step's rules multiply by the same f32 number first.
Status ClipOperation::scale(float factor) {
  for (const auto& unit : units_) {
    for (size_t f = 0; f < unit->flats().size(); ++f) {
      const Flat& flat = unit->flats()[f];
      if (!flat.desc.trainable || flat.summed.size() == 0) continue;
      MERON_ASSIGN(float* const sum, unit->gradient().memory().show(f));
      const Recess recess(flat.summed.size() >= kInlineElements);
      kernels::reduce(sum, true, nullptr, 0, kernels::Type::f32, factor, flat.summed.size(),
                      nullptr);
    }
  }
  return Ok{};
}

}  // namespace meron
