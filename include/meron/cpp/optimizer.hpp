// SPDX-License-Identifier: Apache-2.0
// meron/cpp/optimizer.hpp: update rules on this rank's shards.
#ifndef MERON_CPP_OPTIMIZER_HPP
#define MERON_CPP_OPTIMIZER_HPP

#include <vector>

#include "meron/cpp/methods.hpp"
#include "meron/cpp/param.hpp"
#include "meron/cpp/values.hpp"
#include "meron/optimizer.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// States and update rule for the trainable params of some units. Created by adamw, adam, adagrad,
// lion and sgd. Params are in groups: at first all in group 0, with the rule's hyperparameters.
class Optimizer : public Handle<meron_optimizer, meron_optimizer_release>,
                  public detail::OptimizerMethods<Optimizer> {
 public:
  using Handle::Handle;
  // For rules.hpp.
  [[nodiscard]] static Optimizer make(const UnitList& units, const meron_optimizer_options& raw) {
    return Optimizer(adopt,
                     detail::receive(meron_optimizer_create, units.data(), units.size(), &raw));
  }

  // Steps taken, the last gradient norm before clipping, the learning rate of group 0, and its
  // states.
  meron_optimizer_info info() const {
    return detail::receive_info<meron_optimizer_info>(meron_optimizer_get_info, handle());
  }

  // Gives some params of group 0 their own hyperparameters, for example no weight decay. All ranks
  // must do the same before the next step. Returns the group's number: 1, 2, ... Start from
  // group(0): an OptimizerGroup has the defaults of AdamW, and is refused by optimizers of other
  // rules.
  uint32_t add_group(const ParamList& params, const OptimizerGroup& group) const {
    const meron_optimizer_group raw = group.raw();
    return detail::receive(meron_optimizer_add_group, handle(), params.data(), params.size(), &raw);
  }
  // The hyperparameters of a group: 0, or a number from add_group.
  OptimizerGroup group(uint32_t number) const {
    const auto raw =
        detail::receive_info<meron_optimizer_group>(meron_optimizer_get_group, handle(), number);
    return {raw.learning_rate, raw.beta1,    raw.beta2,      raw.epsilon,
            raw.weight_decay,  raw.lr_decay, raw.defaults_of};
  }
  // Sets them for the next steps; the same on all ranks.
  void set_group(uint32_t number, const OptimizerGroup& group) const {
    const meron_optimizer_group raw = group.raw();
    detail::call(meron_optimizer_set_group, handle(), number, &raw);
  }

  // Makes the next steps leave these params as they are, and no others: values, states and counts
  // of steps. All ranks give the same params before the next step.
  void skip(const ParamList& params) const {
    detail::call(meron_optimizer_set_skipped, handle(), params.data(), params.size());
  }
  // Number of steps that a param has taken: those of the optimizer that did not skip it.
  uint64_t param_steps(const Param& param) const {
    return detail::receive(meron_optimizer_param_steps, handle(), param.handle());
  }
  // Sets it, for states that begin anew or come from elsewhere; the same on all ranks.
  void set_param_steps(const Param& param, uint64_t steps) const {
    detail::call(meron_optimizer_set_param_steps, handle(), param.handle(), steps);
  }

  // This rank's shard of a state, f32, valid until the next step or the optimizer's destruction.
  // Throws MERON_E_UNSUPPORTED if the state is on nvme, or in 16 or 8 bits: use read_state.
  MutableView state(const Param& param, OptimizerState which) const& {
    return MutableView(detail::receive(meron_optimizer_state_view, handle(), param.handle(),
                                       static_cast<meron_optimizer_state>(which)));
  }
  MutableView state(const Param& param, OptimizerState which) const&& = delete;  // it would dangle
  // Copies this rank's shard of a state, from any tier and dtype, into `shard_count` floats (see
  // the param's info). Blocks on this rank's drive if states are on nvme.
  void read_state(const Param& param, OptimizerState which, Span<float> out) const {
    detail::call(meron_optimizer_read_state, out.data(), out.size(), handle(), param.handle(),
                 static_cast<meron_optimizer_state>(which));
  }
  std::vector<float> read_state(const Param& param, OptimizerState which) const {
    const uint64_t count = param.info().shard_count;
    std::vector<float> out = detail::with_memory([&] { return std::vector<float>(count); });
    read_state(param, which, Span<float>(out));
    return out;
  }
  // Replaces this rank's shard of a state; states of 16 or 8 bits are rounded to nearest. Throws
  // MERON_E_ARGUMENT for a master that is the param itself: write that through an update. Blocks as
  // read_state.
  void write_state(const Param& param, OptimizerState which, Span<const float> values) const {
    detail::call(meron_optimizer_write_state, handle(), param.handle(),
                 static_cast<meron_optimizer_state>(which), values.data(), values.size());
  }
};

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

template <>
struct std::hash<meron::Optimizer> : meron::detail::HandleHash {};

#endif  // MERON_CPP_OPTIMIZER_HPP
