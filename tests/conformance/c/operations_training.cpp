// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

void gradient(Session& session, const Statement& statement) {
  const bool overwrite = statement.has("set");
  meron_view view{};
  call(meron_gradient_view, &view, session.find<Param>(statement.name).handle,
       uint64_t{overwrite ? MERON_GRADIENT_OVERWRITE : 0});
  check(view.writable == 1, "the view is not writable");
  const Values values = session.values(statement.get(overwrite ? "set" : "add"));
  for (uint64_t i = 0; i < view.count; ++i) {
    const double before = overwrite ? 0.0 : load(view.dtype, view.data, i);
    store(view.dtype, view.data, i, before + values.at(view.offset + i));
  }
}

// The arrays that `source=PARAM@VALUES` gives, and where they are.
struct Sources {
  std::vector<std::vector<std::byte>> arrays;
  std::vector<meron_source> table;
};

Sources sources_of(Session& session, const Statement& statement) {
  Sources sources;
  for (const auto& [key, value] : statement.arguments) {
    if (key != "source") continue;
    const size_t at = value.find('@');
    if (at == std::string::npos) throw Malformed{"source= takes PARAM@VALUES"};
    meron_source source{};
    source.param = session.find<Param>(value.substr(0, at)).handle;
    meron_param_info info{};
    info.struct_size = sizeof info;
    call(meron_param_get_info, &info, source.param);
    source.dtype = statement.has("dtype") ? dtype_of(statement.get("dtype")) : info.dtype;
    source.count =
        static_cast<uint64_t>(statement.number("count", static_cast<double>(info.count)));
    const Values values = session.values(value.substr(at + 1));
    sources.arrays.push_back(stored(values, source.dtype, source.count));
    source.data = sources.arrays.back().data();  // stays where it is when `arrays` grows
    sources.table.push_back(source);
  }
  return sources;
}

meron_reduce_options options_of(const Statement& statement) {
  meron_reduce_options options{};
  call(meron_reduce_options_init, &options, sizeof options);
  options.op = statement.get("op", "mean") == "sum" ? MERON_SUM : MERON_MEAN;
  options.boundary = static_cast<uint32_t>(statement.number("boundary", 1));
  options.divisor = statement.number("divisor", 1);
  return options;
}

bool nobody_waits(const Statement& statement) {
  return statement.get("future", "") == "none";
}

void reduce(Session& session, const Statement& statement) {
  const meron_reduce_options options = options_of(statement);
  const Sources sources = sources_of(session, statement);
  meron_future future{};
  meron_future* const out = nobody_waits(statement) ? nullptr : &future;
  call(meron_reduce_begin, out, session.find<Unit>(statement.name).handle,
       sources.table.empty() ? nullptr : sources.table.data(), sources.table.size(), &options);
  if (out != nullptr) finish_or_keep(session, statement, future);
}

void reduce_finish(Session& session, const Statement& statement) {
  const meron_reduce_options options = options_of(statement);
  meron_future future{};
  meron_future* const out = nobody_waits(statement) ? nullptr : &future;
  call(meron_reduce_finish_begin, out, session.find<Unit>(statement.name).handle, &options);
  if (out != nullptr) finish_or_keep(session, statement, future);
}

void reduce_wait(Session& session, const Statement& statement) {
  const std::vector<meron_unit> units = session.units(statement);
  const meron_status status =
      call(meron_reduce_wait, units.data(), units.size(), timeout_of(statement));
  check_ended(statement, status);
}

void reduced(Session& session, const Statement& statement) {
  meron_view view{};
  call(meron_reduced_view, &view, session.find<Param>(statement.name).handle);
  check_equal("the dtype", name_of(view.dtype), "f32");
  session.check_data(statement, view.dtype, view.data, view.count, view.offset);
}

void discard(Session& session, const Statement& statement) {
  call(meron_reduce_discard, session.find<Unit>(statement.name).handle);
}

void optimizer(Session& session, const Statement& statement) {
  const std::vector<meron_unit> units = session.units(statement);
  meron_optimizer_options options{};
  call(meron_optimizer_options_init, &options, sizeof options);
  options.learning_rate = statement.number("lr", options.learning_rate);
  options.beta1 = statement.number("beta1", options.beta1);
  options.beta2 = statement.number("beta2", options.beta2);
  options.epsilon = statement.number("epsilon", options.epsilon);
  options.weight_decay = statement.number("weight_decay", options.weight_decay);
  options.max_norm = statement.number("max_norm", options.max_norm);
  meron_optimizer optimizer{};
  call(meron_optimizer_create, &optimizer, units.data(), units.size(),
       static_cast<const meron_optimizer_options*>(&options));
  session.keep(statement.name, std::make_unique<Optimizer>(optimizer));
}

void step(Session& session, const Statement& statement) {
  meron_future future{};
  call(meron_optimizer_step_begin, &future, session.find<Optimizer>(statement.name).handle);
  finish_or_keep(session, statement, future);
}

void optimizer_is(Session& session, const Statement& statement) {
  meron_optimizer_info info{};
  info.struct_size = sizeof info;
  call(meron_optimizer_get_info, &info, session.find<Optimizer>(statement.name).handle);
  const auto steps = static_cast<double>(info.steps);
  check_equal("the number of steps", steps, statement.number("steps", steps));
  check_equal("the norm", info.norm, statement.number("norm", info.norm));
  check_equal("the learning rate", info.learning_rate, statement.number("lr", info.learning_rate));
}

void learning_rate(Session& session, const Statement& statement) {
  call(meron_optimizer_set_learning_rate, session.find<Optimizer>(statement.name).handle,
       to_number(statement.get("lr")));
}

meron_optimizer_state state_of(const std::string& name) {
  if (name == "master") return MERON_STATE_MASTER;
  if (name == "exp_avg") return MERON_STATE_EXP_AVG;
  if (name == "exp_avg_sq") return MERON_STATE_EXP_AVG_SQ;
  throw Malformed{"unknown state '" + name + "'"};
}

void state(Session& session, const Statement& statement) {
  meron_view view{};
  call(meron_optimizer_state_view, &view, session.find<Optimizer>(statement.name).handle,
       session.find<Param>(statement.get("param")).handle, state_of(statement.get("state")));
  check_equal("the dtype", name_of(view.dtype), "f32");
  if (!statement.has("set")) {
    session.check_data(statement, view.dtype, view.data, view.count, view.offset);
    return;
  }
  check(view.writable == 1, "the view is not writable");
  const Values values = session.values(statement.get("set"));
  for (uint64_t i = 0; i < view.count; ++i) {
    store(view.dtype, view.data, i, values.at(view.offset + i));
  }
}

}  // namespace

Operations training_operations() {
  return {{"gradient", gradient},           {"reduce", reduce},   {"reduce_finish", reduce_finish},
          {"reduce_wait", reduce_wait},     {"reduced", reduced}, {"discard", discard},
          {"optimizer", optimizer},         {"step", step},       {"optimizer_is", optimizer_is},
          {"learning_rate", learning_rate}, {"state", state}};
}

}  // namespace conformance
