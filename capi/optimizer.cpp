// SPDX-License-Identifier: Apache-2.0
#include "meron/optimizer.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/view.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

constexpr uint64_t kMaxSteps = uint64_t{1} << 53;  // whole numbers of a double

struct RuleDefaults {
  const char* name;
  const char* macro;
  meron_optimizer_options options;
};
// By kind.
constexpr RuleDefaults kRuleDefaults[] = {
    {"AdamW", "MERON_OPTIMIZER_ADAMW_INIT", MERON_OPTIMIZER_ADAMW_INIT},
    {"Adam", "MERON_OPTIMIZER_ADAM_INIT", MERON_OPTIMIZER_ADAM_INIT},
    {"Adagrad", "MERON_OPTIMIZER_ADAGRAD_INIT", MERON_OPTIMIZER_ADAGRAD_INIT},
    {"Lion", "MERON_OPTIMIZER_LION_INIT", MERON_OPTIMIZER_LION_INIT},
    {"SGD", "MERON_OPTIMIZER_SGD_INIT", MERON_OPTIMIZER_SGD_INIT},
};
static_assert(std::size(kRuleDefaults) == kernels::kRules.size());

Result<const RuleDefaults*> defaults_of(const char* name, meron_optimizer_kind kind) {
  if (kind < 0 || static_cast<size_t>(kind) >= std::size(kRuleDefaults)) {
    return unknown_enum(name, kind);
  }
  return &kRuleDefaults[kind];
}

// Checks that a struct started from the defaults of the rule that it is used with. A struct of
// zeros, or with the defaults of another rule, would train with numbers that the user did not
// choose.
Status check_start(const char* name, uint32_t defaults_of, UpdateRule rule, const char* advice) {
  const RuleDefaults& wanted = kRuleDefaults[static_cast<size_t>(rule)];
  if (defaults_of == wanted.options.defaults_of) return Ok{};
  if (defaults_of > std::size(kRuleDefaults)) {
    return unknown_enum(fmt::format("{}.defaults_of", name).c_str(), defaults_of);
  }
  const std::string what = defaults_of == 0
                               ? fmt::format("{} was not initialized: its defaults_of is 0", name)
                               : fmt::format("{} has the defaults of {}, but the rule is {}", name,
                                             kRuleDefaults[defaults_of - 1].name, wanted.name);
  return Error(MERON_E_ARGUMENT, what, advice).on(name);
}

GroupOptions translate(const meron_optimizer_group& given) {
  return {given.learning_rate, given.beta1,        given.beta2,
          given.epsilon,       given.weight_decay, given.lr_decay};
}

Result<OptimizerOptions> translate(const meron_optimizer_options& given) {
  MERON_ASSIGN(const RuleDefaults* defaults, defaults_of("options.kind", given.kind));
  OptimizerOptions options;
  options.rule = static_cast<UpdateRule>(given.kind);
  const std::string advice =
      fmt::format("start from {} or the rule's init function", defaults->macro);
  MERON_TRY(check_start("options", given.defaults_of, options.rule, advice.c_str()));
  if (given.nesterov > 1) return unknown_enum("options.nesterov", given.nesterov);
  options.group = {given.learning_rate, given.beta1,        given.beta2,
                   given.epsilon,       given.weight_decay, given.lr_decay};
  options.max_norm = given.max_norm;
  options.dampening = given.dampening;
  options.nesterov = given.nesterov == 1;
  return options;
}

Result<GroupOptions> read_group(const meron_optimizer_group* group, const Optimizer& optimizer) {
  const meron_optimizer_group defaults = MERON_OPTIMIZER_GROUP_INIT;
  MERON_TRY(need(group, "group"));
  MERON_ASSIGN(const meron_optimizer_group given, read_options(group, defaults, "group"));
  MERON_TRY(check_start("group", given.defaults_of, optimizer.options().rule,
                        "start from a group of this optimizer, such as group 0"));
  const GroupOptions options = translate(given);
  MERON_TRY(validate(optimizer.options(), options));
  return options;
}

Status check_number(const Optimizer& optimizer, uint32_t number) {
  if (number < optimizer.groups()) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("there is no optimizer group {}: the optimizer has {}", number,
                           optimizer.groups()),
               "give 0, or the number that a group got when it was added");
}

Status check_steps(uint64_t steps) {
  if (steps <= kMaxSteps) return Ok{};
  return Error(MERON_E_ARGUMENT, fmt::format("steps is {}, more than 2^53", steps),
               "give the number of steps that were taken");
}

Result<std::vector<const Param*>> get_params(const meron_param* params, size_t count) {
  if (count > 0) MERON_TRY(need(params, "params"));
  std::vector<const Param*> found;
  for (size_t i = 0; i < count; ++i) {
    MERON_ASSIGN(const auto param, get<ParamHolder>(params[i]));
    found.push_back(param->value.get());
  }
  return found;
}

Result<OptimizerState> translate_state(meron_optimizer_state state) {
  if (state < MERON_OPTIMIZER_STATE_MASTER || state > MERON_OPTIMIZER_STATE_EXP_AVG_SQ) {
    return unknown_enum("state", state);
  }
  return static_cast<OptimizerState>(state);
}

}  // namespace

extern "C" {

meron_status meron_optimizer_rule_init(meron_optimizer_options* options, size_t struct_size,
                                       meron_optimizer_kind kind, meron_error** err) {
  return guard("optimizer_rule_init", err, [&]() -> Status {
    MERON_ASSIGN(const RuleDefaults* defaults, defaults_of("kind", kind));
    return init_options(options, struct_size, defaults->options);
  });
}

meron_status meron_optimizer_create(meron_optimizer* out, const meron_unit* units, size_t count,
                                    const meron_optimizer_options* options, meron_error** err) {
  return guard("optimizer_create", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    const meron_optimizer_options defaults = MERON_OPTIMIZER_OPTIONS_INIT;
    MERON_ASSIGN(const meron_optimizer_options given, read_options(options, defaults, "options"));
    MERON_ASSIGN(const OptimizerOptions translated, translate(given));
    MERON_ASSIGN(Units found, get_units(units, count));
    rank = found.context->transport().rank();
    MERON_ASSIGN(auto handle, NewHandle<OptimizerHolder>::make(found.context));
    MERON_ASSIGN(auto optimizer,
                 found.context->create_optimizer(std::move(found.units), translated));
    handle.issue(out, std::move(optimizer));
    return Ok{};
  });
}

meron_status meron_optimizer_set_max_norm(meron_optimizer optimizer, double max_norm,
                                          meron_error** err) {
  return guard("optimizer_set_max_norm", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    auto held = holder->context->lock();
    OptimizerOptions changed = holder->value->options();
    changed.max_norm = max_norm;
    MERON_TRY(validate(changed));
    holder->value->set_max_norm(max_norm);
    return Ok{};
  });
}

meron_status meron_optimizer_set_learning_rate(meron_optimizer optimizer, double learning_rate,
                                               meron_error** err) {
  return guard("optimizer_set_learning_rate", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    auto held = holder->context->lock();
    GroupOptions changed = holder->value->group(0);
    changed.learning_rate = learning_rate;
    MERON_TRY(validate(holder->value->options(), changed));
    holder->value->set_group(0, changed);
    return Ok{};
  });
}

meron_status meron_optimizer_group_init(meron_optimizer_group* group, size_t struct_size,
                                        meron_error** err) {
  return guard("optimizer_group_init", err, [&]() -> Status {
    const meron_optimizer_group initial = MERON_OPTIMIZER_GROUP_INIT;
    return init_options(group, struct_size, initial);
  });
}

meron_status meron_optimizer_add_group(uint32_t* out, meron_optimizer optimizer,
                                       const meron_param* params, size_t count,
                                       const meron_optimizer_group* group, meron_error** err) {
  return guard("optimizer_add_group", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto found, get_params(params, count));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    if (holder->value->stepping()) MERON_TRY(holder->value->check_idle());
    MERON_ASSIGN(const GroupOptions options, read_group(group, *holder->value));
    MERON_ASSIGN(*out, holder->value->add_group(found, options));
    return Ok{};
  });
}

meron_status meron_optimizer_set_group(meron_optimizer optimizer, uint32_t number,
                                       const meron_optimizer_group* group, meron_error** err) {
  return guard("optimizer_set_group", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    auto held = holder->context->lock();
    MERON_TRY(check_number(*holder->value, number));
    MERON_ASSIGN(const GroupOptions options, read_group(group, *holder->value));
    holder->value->set_group(number, options);
    return Ok{};
  });
}

meron_status meron_optimizer_get_group(meron_optimizer_group* out, meron_optimizer optimizer,
                                       uint32_t number, meron_error** err) {
  return guard("optimizer_get_group", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    auto held = holder->context->lock();
    MERON_TRY(check_number(*holder->value, number));
    const GroupOptions& group = holder->value->group(number);
    meron_optimizer_group result = MERON_OPTIMIZER_GROUP_INIT;
    const auto rule = static_cast<size_t>(holder->value->options().rule);
    result.defaults_of = kRuleDefaults[rule].options.defaults_of;
    result.learning_rate = group.learning_rate;
    result.beta1 = group.beta1;
    result.beta2 = group.beta2;
    result.epsilon = group.epsilon;
    result.weight_decay = group.weight_decay;
    result.lr_decay = group.lr_decay;
    return write_info(out, result, "out");
  });
}

meron_status meron_optimizer_step_begin(meron_future* out, meron_optimizer optimizer,
                                        meron_error** err) {
  return guard("optimizer_step_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN(auto handle, NewHandle<FutureHolder>::make(holder->context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_ASSIGN(auto step, holder->context->step(held, holder->value));
    handle.issue(out, std::move(step));
    return Ok{};
  });
}

meron_status meron_optimizer_set_steps(meron_optimizer optimizer, uint64_t steps,
                                       meron_error** err) {
  return guard("optimizer_set_steps", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_TRY(check_steps(steps));
    auto held = holder->context->lock();
    if (holder->value->stepping()) MERON_TRY(holder->value->check_idle());
    holder->value->set_steps(steps);
    return Ok{};
  });
}

meron_status meron_optimizer_set_skipped(meron_optimizer optimizer, const meron_param* params,
                                         size_t count, meron_error** err) {
  return guard("optimizer_set_skipped", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto found, get_params(params, count));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    auto held = holder->context->lock();
    if (holder->value->stepping()) MERON_TRY(holder->value->check_idle());
    for (const Param* param : found) MERON_TRY(holder->value->check_trained(*param));
    holder->value->skip(found);
    return Ok{};
  });
}

meron_status meron_optimizer_param_steps(uint64_t* out, meron_optimizer optimizer,
                                         meron_param param, meron_error** err) {
  return guard("optimizer_param_steps", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    auto held = holder->context->lock();
    MERON_TRY(holder->value->check_trained(*target->value));
    *out = holder->value->steps_of(*target->value);
    return Ok{};
  });
}

meron_status meron_optimizer_set_param_steps(meron_optimizer optimizer, meron_param param,
                                             uint64_t steps, meron_error** err) {
  return guard("optimizer_set_param_steps", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    MERON_TRY(check_steps(steps));
    auto held = holder->context->lock();
    if (holder->value->stepping()) MERON_TRY(holder->value->check_idle());
    MERON_TRY(holder->value->check_trained(*target->value));
    holder->value->set_param_steps({{target->value.get(), steps}});
    return Ok{};
  });
}

meron_status meron_optimizer_get_info(meron_optimizer_info* out, meron_optimizer optimizer,
                                      meron_error** err) {
  return guard("optimizer_get_info", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    auto held = holder->context->lock();
    meron_optimizer_info info{};
    info.steps = holder->value->steps();
    info.norm = holder->value->norm();
    info.learning_rate = holder->value->group(0).learning_rate;
    info.groups = static_cast<uint32_t>(holder->value->groups());
    info.states = states_of(holder->value->options());
    info.nvme_bytes = holder->value->nvme_bytes();
    info.offloaded_bytes = holder->value->offloaded_bytes();
    return write_info(out, info, "out");
  });
}

meron_status meron_optimizer_state_view(meron_view* out, meron_optimizer optimizer,
                                        meron_param param, meron_optimizer_state state,
                                        meron_error** err) {
  return guard("optimizer_state_view", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    const Param& value = *target->value;
    auto held = holder->context->lock();
    MERON_ASSIGN(const OptimizerState which, translate_state(state));
    MERON_ASSIGN(const Optimizer::Place place, holder->value->place(value, which));
    if (holder->value->offloaded()) MERON_TRY(holder->value->check_idle());
    const Range& part = place.slice;
    float* const data = place.states->in_place(place.state, place.first, part.size());
    if (data == nullptr) {
      return Error(MERON_E_UNSUPPORTED,
                   fmt::format("the state of param '{}' does not lie in memory in f32",
                               value.desc.name),
                   "read and write copies of the state instead of a view")
          .on(value.desc.name);
    }
    const bool writable = state != MERON_OPTIMIZER_STATE_MASTER || value.desc.dtype != DType::f32;
    *out = make_view(writable ? data : place.states->readable_master(place.first), part, DType::f32,
                     writable);
    return Ok{};
  });
}

meron_status meron_optimizer_read_state(float* out, uint64_t count, meron_optimizer optimizer,
                                        meron_param param, meron_optimizer_state state,
                                        meron_error** err) {
  return guard("optimizer_read_state", err, [&](int& rank) -> Status {
    if (count > 0) MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    MERON_ASSIGN(const OptimizerState which, translate_state(state));
    return holder->context->read_state(*holder->value, *target->value, which, count, out);
  });
}

meron_status meron_optimizer_write_state(meron_optimizer optimizer, meron_param param,
                                         meron_optimizer_state state, const float* data,
                                         uint64_t count, meron_error** err) {
  return guard("optimizer_write_state", err, [&](int& rank) -> Status {
    if (count > 0) MERON_TRY(need(data, "data"));
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    MERON_ASSIGN(const OptimizerState which, translate_state(state));
    return holder->context->write_state(*holder->value, *target->value, which, count, data);
  });
}

meron_status meron_optimizer_offload(meron_optimizer optimizer, const char* folder,
                                     meron_error** err) {
  return guard("optimizer_offload", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn_when_copied());
    auto held = holder->context->lock();
    return holder->value->offload(folder == nullptr ? std::string() : std::string(folder));
  });
}

meron_status meron_optimizer_reload(meron_optimizer optimizer, meron_error** err) {
  return guard("optimizer_reload", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizer, rank));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn_when_copied());
    auto held = holder->context->lock();
    return holder->value->reload();
  });
}

meron_status meron_optimizer_release(meron_optimizer optimizer, meron_error** err) {
  return guard("optimizer_release", err, [&]() -> Status {
    MERON_ASSIGN(auto holder, take<OptimizerHolder>(optimizer));
    // The last reference is dropped under the lock, because the destructor changes units.
    const auto context = holder->context;
    auto last = holder->value;
    holder.reset();
    context->release_in_turn([last = std::move(last)]() mutable { last.reset(); });
    return Ok{};
  });
}

}  // extern "C"
