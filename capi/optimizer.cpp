// SPDX-License-Identifier: Apache-2.0
#include "meron/optimizer.h"

#include <fmt/format.h>

#include "capi/guard.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

extern "C" {

meron_status meron_optimizer_options_init(meron_optimizer_options* options, size_t struct_size,
                                          meron_error** err) {
  return guard("optimizer_options_init", err, [&]() -> Status {
    const meron_optimizer_options initial = MERON_OPTIMIZER_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_optimizer_create(meron_optimizer* out, const meron_unit* units, size_t count,
                                    const meron_optimizer_options* options, meron_error** err) {
  return guard("optimizer_create", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    const meron_optimizer_options defaults = MERON_OPTIMIZER_OPTIONS_INIT;
    MERON_ASSIGN(const meron_optimizer_options given, read_options(options, defaults, "options"));
    if (given.kind != MERON_ADAMW) return unknown_enum("options.kind", given.kind);
    MERON_ASSIGN(Units found, get_units(units, count));
    rank = found.context->transport().rank();
    AdamWOptions adamw;
    adamw.learning_rate = given.learning_rate;
    adamw.beta1 = given.beta1;
    adamw.beta2 = given.beta2;
    adamw.epsilon = given.epsilon;
    adamw.weight_decay = given.weight_decay;
    adamw.max_norm = given.max_norm;
    const auto lock = found.context->lock();
    MERON_ASSIGN(auto optimizer,
                 found.context->create_optimizer_locked(std::move(found.units), adamw));
    return put<OptimizerHolder>(out, found.context, std::move(optimizer));
  });
}

meron_status meron_optimizer_set_learning_rate(meron_optimizer optimizer, double learning_rate,
                                               meron_error** err) {
  return guard("optimizer_set_learning_rate", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    const auto lock = holder->context->lock();
    AdamWOptions changed = holder->value->options();
    changed.learning_rate = learning_rate;
    MERON_TRY(validate(changed));
    holder->value->set_learning_rate(learning_rate);
    return Ok{};
  });
}

meron_status meron_optimizer_step_begin(meron_future* out, meron_optimizer optimizer,
                                        meron_error** err) {
  return guard("optimizer_step_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    const auto lock = holder->context->lock();
    MERON_ASSIGN(auto step, holder->context->step_locked(holder->value));
    return put<FutureHolder>(out, holder->context, std::move(step));
  });
}

meron_status meron_optimizer_get_info(meron_optimizer_info* out, meron_optimizer optimizer,
                                      meron_error** err) {
  return guard("optimizer_get_info", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    const auto lock = holder->context->lock();
    meron_optimizer_info info{};
    info.steps = holder->value->steps();
    info.norm = holder->value->norm();
    info.learning_rate = holder->value->options().learning_rate;
    return write_info(out, info, "out");
  });
}

meron_status meron_optimizer_state_view(meron_view* out, meron_optimizer optimizer,
                                        meron_param param, meron_optimizer_state state,
                                        meron_error** err) {
  return guard("optimizer_state_view", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    if (state < MERON_STATE_MASTER || state > MERON_STATE_EXP_AVG_SQ) {
      return unknown_enum("state", state);
    }
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    const Param& value = *target->value;
    const auto lock = holder->context->lock();
    float* data = nullptr;
    Range part;
    if (!holder->value->state(value, static_cast<OptimizerState>(state), &data, &part)) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("param '{}' is not trained by this optimizer", value.desc.name),
                   "create the optimizer with the unit that has the param")
          .on(value.desc.name);
    }
    out->data = data;
    out->count = part.size();
    out->offset = part.begin;
    out->dtype = MERON_F32;
    out->writable = state != MERON_STATE_MASTER || value.desc.dtype != DType::f32 ? 1 : 0;
    return Ok{};
  });
}

meron_status meron_optimizer_release(meron_optimizer optimizer, meron_error** err) {
  return guard("optimizer_release", err, [&]() -> Status {
    MERON_ASSIGN(auto holder, take<OptimizerHolder>(optimizer));
    // The last reference may go here; units are told under the lock.
    const auto context = holder->context;
    const auto lock = context->lock();
    holder.reset();
    return Ok{};
  });
}

}  // extern "C"
