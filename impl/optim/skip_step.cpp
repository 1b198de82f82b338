// SPDX-License-Identifier: Apache-2.0
// A step whose gradients are not finite: no rank changes anything, and all discard them.
#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

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

// The first place, and how many ranks have found others. If a codec has encoded it, only the rank
// that did knows the element: all others have the block that it made NaN.
std::string StepOperation::nonfinite_places() const {
  std::vector<std::pair<NonFinitePlace, int>> places, encoded;
  for (int m = 0; m < channel_.size(); ++m) {
    NonFinitePlace place;
    std::memcpy(&place,
                channel_.member(m).norm[norm_number_ % 2].data() + sizeof(kernels::ExactSum),
                sizeof(place));
    if (place.unit == NonFinitePlace::kNone) continue;
    auto& list = place.kind == NonFinitePlace::Kind::encoded ? encoded : places;
    list.emplace_back(place, channel_.members().world_rank(m));
  }
  const auto& found = encoded.empty() ? places : encoded;
  if (found.empty()) return "the sum of finite squares is too large";
  const size_t others = found.size() - 1;
  const std::string_view of = encoded.empty() ? "the shards" : "gradients";
  return "the gradient is not finite: " +
         text_of(found.front().first, optimizer_->units_, found.front().second) +
         (others > 0 ? fmt::format(", and in {} of {} other ranks", of, others) : "");
}

}  // namespace meron
