// SPDX-License-Identifier: Apache-2.0
// A step whose gradients are not finite: no rank changes anything, and all discard them.
#include <fmt/format.h>

#include <cstring>

#include "gradient/gradient.h"
#include "kernels/cpu/reduce.h"
#include "optim/nonfinite.h"
#include "optim/step.h"

namespace meron {

Error StepOperation::skip(double norm) {
  const std::string places = nonfinite_places();
  for (const auto& unit : optimizer_->units_) {
    Gradient& gradient = unit->gradient();
    if (Status left = gradient.enter(GradientState::empty); !left.ok()) return left.error();
    if (Status dropped = gradient.drop_feedback(); !dropped.ok()) return dropped.error();
  }
  end();
  return Error(MERON_E_NONFINITE, fmt::format("the global gradient norm is {}: {}", norm, places),
               "nothing was changed and the gradients were discarded, on all ranks: skip this "
               "step, or lower the learning rate or loss scale")
      .during("optimizer_step");
}

// The first place, and how many ranks have found others.
std::string StepOperation::nonfinite_places() const {
  std::string first;
  int others = 0;
  for (int m = 0; m < channel_.size(); ++m) {
    NonFinitePlace place;
    std::memcpy(&place,
                channel_.member(m).norm[norm_number_ % 2].data() + sizeof(kernels::ExactSum),
                sizeof(place));
    if (place.unit == NonFinitePlace::kNone) continue;
    if (!first.empty()) {
      ++others;
    } else {
      first = text_of(place, optimizer_->units_, channel_.members().world_rank(m));
    }
  }
  if (first.empty()) return "the sum of finite squares is too large";
  return "the gradient is not finite: " + first +
         (others > 0 ? fmt::format(", and in the shards of {} other ranks", others) : "");
}

}  // namespace meron
