// SPDX-License-Identifier: Apache-2.0
// A step whose gradients are not finite, or which would make a state or a value infinite: no rank
// changes anything, and all discard them.
#include <fmt/format.h>

#include <utility>

#include "gradient/gradient.h"
#include "kernels/cpu/reduce.h"
#include "optim/nonfinite.h"
#include "optim/step.h"

namespace meron {

Status StepOperation::drop_gradients() {
  for (const auto& unit : optimizer_->units_) {
    Gradient& gradient = unit->gradient();
    MERON_TRY(gradient.enter(GradientState::empty));
    MERON_TRY(gradient.drop_feedback());
  }
  return Ok{};
}

Error StepOperation::skip(double norm) {
  for (int m = 0; m < channel_.size(); ++m) {
    const NonFinitePlace place = norm_.place_of(m);
    if (place.unit != NonFinitePlace::kNone && place.kind == NonFinitePlace::Kind::held) {
      return refuse_held(place, m);
    }
  }
  const std::string found = norm_.places(optimizer_->units_);
  if (Status dropped = drop_gradients(); !dropped.ok()) return dropped.error();
  end();
  return Error(MERON_E_NONFINITE, nonfinite_text(norm, found),
               "nothing was changed and the gradients were discarded, on all ranks: skip this "
               "step, or lower the learning rate or loss scale")
      .during("optimizer_step");
}

// Each later step would fail, whatever its loss scale is.
Error StepOperation::refuse_held(const NonFinitePlace& place, int member) {
  const Unit& unit = *optimizer_->units_[place.unit];
  const std::string found = text_of(place, unit, channel_.members().world_rank(member));
  const std::string param =
      place.param < unit.params().size() ? unit.params()[place.param]->desc.name : unit.name();
  if (Status dropped = drop_gradients(); !dropped.ok()) return dropped.error();
  end();
  return Error(MERON_E_NONFINITE,
               fmt::format("an earlier step made a value infinite in f16: {}", found),
               "load the last checkpoint, and lower the learning rate, or train the param in bf16 "
               "or f32")
      .on(param)
      .during("optimizer_step");
}

// The kind of the first place is that of all that the error names.
Error StepOperation::refuse_overflow(const std::string& places) {
  bool in_value = false;
  DType dtype = DType::f32;
  std::string param;
  for (int m = channel_.size() - 1; m >= 0; --m) {
    const NonFinitePlace place = norm_.place_of(m);
    if (place.unit == NonFinitePlace::kNone) continue;
    in_value = place.kind == NonFinitePlace::Kind::value;
    const Unit& unit = *optimizer_->units_[place.unit];
    if (place.param >= unit.params().size()) continue;
    dtype = unit.params()[place.param]->desc.dtype;
    param = unit.params()[place.param]->desc.name;
  }
  if (Status dropped = drop_gradients(); !dropped.ok()) return dropped.error();
  const bool squares = index_of(optimizer_->options_, OptimizerState::exp_avg_sq) >= 0;
  end();
  constexpr const char* kNothing =
      "nothing was changed and the gradients were discarded, on all ranks: ";
  if (in_value) {
    return Error(MERON_E_NONFINITE,
                 fmt::format("the step would make a value infinite or NaN in {}: {}",
                             name_of(dtype), places),
                 fmt::format("{}lower the learning rate, or {}", kNothing,
                             dtype == DType::f16 ? "train the param in bf16 or f32"
                                                 : "check the states that were loaded or written"))
        .on(param)
        .during("optimizer_step");
  }
  return Error(MERON_E_NONFINITE,
               fmt::format("the step would make {} infinite or NaN: {}",
                           squares ? "exp_avg_sq" : "the momentum", places),
               fmt::format("{}clip the gradients (max_norm), or lower the loss scale", kNothing))
      .during("optimizer_step");
}

}  // namespace meron
