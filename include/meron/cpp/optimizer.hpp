// SPDX-License-Identifier: Apache-2.0
// meron/cpp/optimizer.hpp: update rules on this rank's shards.
#ifndef MERON_CPP_OPTIMIZER_HPP
#define MERON_CPP_OPTIMIZER_HPP

#include "meron/cpp/param.hpp"
#include "meron/optimizer.h"

namespace meron {
inline namespace v1 {

// The rule of Loshchilov and Hutter, arXiv 1711.05101.
struct AdamW {
  double learning_rate = 1e-3;  // >= 0
  double beta1 = 0.9;           // 0 <= beta1 < 1
  double beta2 = 0.999;         // 0 <= beta2 < 1
  double epsilon = 1e-8;        // > 0
  double weight_decay = 0.01;   // >= 0
  double max_norm = 0.0;        // gradients are scaled to at most this 2-norm; 0: no clipping

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_OPTIONS_INIT;
    made.kind = MERON_ADAMW;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

enum class OptimizerState : meron_optimizer_state {
  master = MERON_STATE_MASTER,          // f32 values; the param itself where that is f32
  exp_avg = MERON_STATE_EXP_AVG,        // first moment
  exp_avg_sq = MERON_STATE_EXP_AVG_SQ,  // second moment
};

// States and update rule for the trainable params of some units. Made by adamw.
class Optimizer : public Handle<meron_optimizer, meron_optimizer_release> {
 public:
  using Handle::Handle;
  // The same on all ranks; from the next step on.
  void set_learning_rate(double learning_rate) const {
    detail::call(meron_optimizer_set_learning_rate, handle(), learning_rate);
  }
  // Norm, clipping, update of this rank's parts, publication. Needs the reduced gradient of every
  // unit, and no gather of any of them on this rank. Collective. From the wait: MERON_E_NONFINITE
  // on all ranks when the norm is not finite; nothing was changed then.
  [[nodiscard]] Future step_begin() const {
    return Future(detail::receive(meron_optimizer_step_begin, handle()));
  }
  void step() const { step_begin().wait(); }

  // Steps taken, the last gradient norm before clipping, and the learning rate.
  meron_optimizer_info info() const {
    return detail::receive_info<meron_optimizer_info>(meron_optimizer_get_info, handle());
  }
  // This rank's part of a state, f32, until the next step or until the optimizer dies.
  View state(const Param& param, OptimizerState which) const {
    return View(detail::receive(meron_optimizer_state_view, handle(), param.handle(),
                                static_cast<meron_optimizer_state>(which)));
  }
};

// Makes an optimizer by AdamW for some units, with states that are zero. Collective over the units'
// group.
[[nodiscard]] inline Optimizer adamw(const UnitList& units, const AdamW& rule = {}) {
  const meron_optimizer_options raw = rule.raw();
  return Optimizer(detail::receive(meron_optimizer_create, units.data(), units.size(), &raw));
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_OPTIMIZER_HPP
