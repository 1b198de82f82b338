// SPDX-License-Identifier: Apache-2.0
// meron/cpp/optimizer.hpp: update rules on this rank's shards.
#ifndef MERON_CPP_OPTIMIZER_HPP
#define MERON_CPP_OPTIMIZER_HPP

#include <vector>

#include "meron/cpp/param.hpp"
#include "meron/optimizer.h"

namespace meron {
inline namespace v1 {

// The rules, with the numbers of param group 0.

// Loshchilov and Hutter, arXiv 1711.05101.
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

// Kingma and Ba, arXiv 1412.6980; weight decay is part of the gradient.
struct Adam {
  double learning_rate = 1e-3;  // these as in AdamW
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double max_norm = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_OPTIONS_INIT;
    made.kind = MERON_ADAM;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

// Duchi, Hazan and Singer, JMLR 12 (2011); weight decay is part of the gradient. Keeps the sum of
// squared gradients, exp_avg_sq.
struct Adagrad {
  double learning_rate = 1e-2;  // these as in AdamW
  double epsilon = 1e-10;
  double weight_decay = 0.0;
  double max_norm = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_OPTIONS_INIT;
    made.kind = MERON_ADAGRAD;
    made.learning_rate = learning_rate;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

// Chen et al., arXiv 2302.06675. Keeps an average of gradients, exp_avg.
struct Lion {
  double learning_rate = 1e-4;  // these as in AdamW
  double beta1 = 0.9;           // of the direction that is taken
  double beta2 = 0.99;          // of the average that is kept
  double weight_decay = 0.0;
  double max_norm = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_OPTIONS_INIT;
    made.kind = MERON_LION;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

// Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient. With a
// momentum it keeps a state, exp_avg; without, none.
struct Sgd {
  double learning_rate = 1e-3;  // as in AdamW
  double momentum = 0.0;        // 0 <= momentum < 1; beta1 of a ParamGroup
  double dampening = 0.0;       // of the gradient that is added to the state; 0 <= dampening < 1
  bool nesterov = false;        // needs a momentum and no dampening
  double weight_decay = 0.0;    // as in AdamW
  double max_norm = 0.0;        // as in AdamW

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_OPTIONS_INIT;
    made.kind = MERON_SGD;
    made.learning_rate = learning_rate;
    made.beta1 = momentum;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    made.dampening = dampening;
    made.nesterov = nesterov ? 1 : 0;
    return made;
  }
};

// What the params of one group share; numbers that the rule does not use mean nothing.
struct ParamGroup {
  double learning_rate = 1e-3;  // these as in AdamW
  double beta1 = 0.9;           // Sgd: the momentum, 0 in all groups or in none
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  meron_param_group raw() const noexcept {
    meron_param_group made = MERON_PARAM_GROUP_INIT;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    return made;
  }
};

enum class OptimizerState : meron_optimizer_state {
  master = MERON_STATE_MASTER,          // f32 values; the param itself where that is f32
  exp_avg = MERON_STATE_EXP_AVG,        // average of the gradients; Lion's, and SGD's momentum
  exp_avg_sq = MERON_STATE_EXP_AVG_SQ,  // average of their squares; Adagrad's sum of them
};

// States and update rule for the trainable params of some units. Made by adamw, adam, adagrad, lion
// and sgd. Params are in groups: at first all in group 0, whose numbers the rule has.
class Optimizer : public Handle<meron_optimizer, meron_optimizer_release> {
 public:
  using Handle::Handle;
  // Of group 0; the same on all ranks; from the next step on.
  void set_learning_rate(double learning_rate) const {
    detail::call(meron_optimizer_set_learning_rate, handle(), learning_rate);
  }
  // How many steps count as taken, at most 2^53: for an optimizer that goes on from a checkpoint,
  // beside its states. Not during a step; the same on all ranks. Throws MERON_E_ARGUMENT,
  // MERON_E_STATE.
  void set_steps(uint64_t steps) const { detail::call(meron_optimizer_set_steps, handle(), steps); }
  // Norm, clipping, update of this rank's parts, publication. Needs the reduced gradient of every
  // unit, and no gather of any of them on this rank. Collective. From the wait: MERON_E_NONFINITE
  // on all ranks when the norm is not finite; nothing was changed then.
  [[nodiscard]] Future step_begin() const {
    return Future(detail::receive(meron_optimizer_step_begin, handle()));
  }
  void step() const { step_begin().wait(); }

  // Steps taken, the last gradient norm before clipping, the learning rate of group 0, and what it
  // keeps.
  meron_optimizer_info info() const {
    return detail::receive_info<meron_optimizer_info>(meron_optimizer_get_info, handle());
  }

  // Gives some params, none of them in a group that was added, numbers of their own, for example no
  // weight decay. All ranks must do the same before the next step. The group's number: 1, 2, ...
  uint32_t add_param_group(const ParamList& params, const ParamGroup& group) const {
    const meron_param_group raw = group.raw();
    return detail::receive(meron_optimizer_add_param_group, handle(), params.data(), params.size(),
                           &raw);
  }
  // The numbers of a group: 0, or one that add_param_group gave.
  ParamGroup group(uint32_t number) const {
    const auto raw =
        detail::receive_info<meron_param_group>(meron_optimizer_get_param_group, handle(), number);
    return {raw.learning_rate, raw.beta1, raw.beta2, raw.epsilon, raw.weight_decay};
  }
  // Sets them for the next steps; the same on all ranks.
  void set_group(uint32_t number, const ParamGroup& group) const {
    const meron_param_group raw = group.raw();
    detail::call(meron_optimizer_set_param_group, handle(), number, &raw);
  }

  // This rank's part of a state, f32, until the next step or until the optimizer dies. Throws
  // MERON_E_UNSUPPORTED where it lies on nvme, or in 16 or 8 bits: read_state copies it.
  View state(const Param& param, OptimizerState which) const {
    return View(detail::receive(meron_optimizer_state_view, handle(), param.handle(),
                                static_cast<meron_optimizer_state>(which)));
  }
  // Copies this rank's part of a state, wherever and however it lies, into as many floats as the
  // param's info has owned_count. Blocks on this rank's drive where states lie on nvme.
  void read_state(const Param& param, OptimizerState which, Span<float> out) const {
    detail::call(meron_optimizer_read_state, out.data(), out.size(), handle(), param.handle(),
                 static_cast<meron_optimizer_state>(which));
  }
  std::vector<float> read_state(const Param& param, OptimizerState which) const {
    std::vector<float> out;
    try {
      out.resize(param.info().owned_count);
    } catch (const std::bad_alloc&) {
      detail::raise_no_memory();
    }
    read_state(param, which, Span<float>(out));
    return out;
  }
  // Replaces this rank's part of a state; states of 16 or 8 bits are rounded to nearest. Throws
  // MERON_E_ARGUMENT for a master that is the param itself: write that through an update. Blocks as
  // read_state.
  void write_state(const Param& param, OptimizerState which, Span<const float> values) const {
    detail::call(meron_optimizer_write_state, handle(), param.handle(),
                 static_cast<meron_optimizer_state>(which), values.data(), values.size());
  }

  // Moves this rank's states from memory to its file on a drive, and gives their memory back; they
  // must be reloaded before the next step. `folder`: on a drive; null for the plan's, or where the
  // file is already. Views of states end. Blocks on this rank's drive. Throws MERON_E_ARGUMENT,
  // MERON_E_STATE, MERON_E_NO_SPACE, MERON_E_IO, after which they are where they were.
  void offload(const char* folder = nullptr) const {
    detail::call(meron_optimizer_offload, handle(), folder);
  }
  // Brings them back, bit by bit the same. Blocks on this rank's drive. Throws MERON_E_STATE where
  // they are not away, MERON_E_NO_MEMORY, MERON_E_IO and MERON_E_CORRUPT, after which they are
  // still.
  void reload() const { detail::call(meron_optimizer_reload, handle()); }
};

// Make an optimizer for the trainable params of some units, with states that are zero. Collective
// over the units' group. Where the plan puts states on nvme, they are written once here: blocks on
// this rank's drive, and throws MERON_E_NO_SPACE, MERON_E_NOT_FOUND and MERON_E_IO besides.
[[nodiscard]] inline Optimizer adamw(const UnitList& units, const AdamW& rule = {}) {
  const meron_optimizer_options raw = rule.raw();
  return Optimizer(detail::receive(meron_optimizer_create, units.data(), units.size(), &raw));
}
[[nodiscard]] inline Optimizer adam(const UnitList& units, const Adam& rule = {}) {
  const meron_optimizer_options raw = rule.raw();
  return Optimizer(detail::receive(meron_optimizer_create, units.data(), units.size(), &raw));
}
[[nodiscard]] inline Optimizer adagrad(const UnitList& units, const Adagrad& rule = {}) {
  const meron_optimizer_options raw = rule.raw();
  return Optimizer(detail::receive(meron_optimizer_create, units.data(), units.size(), &raw));
}
[[nodiscard]] inline Optimizer lion(const UnitList& units, const Lion& rule = {}) {
  const meron_optimizer_options raw = rule.raw();
  return Optimizer(detail::receive(meron_optimizer_create, units.data(), units.size(), &raw));
}
[[nodiscard]] inline Optimizer sgd(const UnitList& units, const Sgd& rule = {}) {
  const meron_optimizer_options raw = rule.raw();
  return Optimizer(detail::receive(meron_optimizer_create, units.data(), units.size(), &raw));
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_OPTIMIZER_HPP
