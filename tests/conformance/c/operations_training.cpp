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

// The arrays of `source=PARAM@VALUES`, and their memory; or the memory of the gather that `from=`
// names.
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
    source.data = sources.arrays.back().data();  // its address stays when `arrays` grows
    sources.table.push_back(source);
  }
  if (!statement.has("from")) return sources;
  const meron_future gather = session.find<Gather>(statement.get("from")).owned->handle;
  for (const meron_param param : session.find<Unit>(statement.name).params) {
    meron_view view{};
    call(meron_gather_view, &view, gather, param);
    sources.table.push_back({param, view.data, view.count, view.dtype, 0});
  }
  return sources;
}

meron_reduce_options options_of(const Statement& statement) {
  meron_reduce_options options{};
  call(meron_reduce_options_init, &options, sizeof options);
  options.op = statement.get("op", "mean") == "sum" ? MERON_REDUCE_OP_SUM : MERON_REDUCE_OP_MEAN;
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

void clip(Session& session, const Statement& statement) {
  const std::vector<meron_unit> units = session.units(statement);
  double norm = 0;
  call(meron_gradient_clip, &norm, units.data(), units.size(), statement.number("max_norm", 0));
  check_equal("the norm", norm, statement.number("is", norm));
}

void destroy(Session& session, const Statement& statement) {
  call(meron_unit_destroy, session.find<Unit>(statement.name).handle);
}

void discard(Session& session, const Statement& statement) {
  call(meron_reduce_discard, session.find<Unit>(statement.name).handle);
}

meron_optimizer_kind kind_of(const std::string& name) {
  if (name == "adamw") return MERON_OPTIMIZER_ADAMW;
  if (name == "adam") return MERON_OPTIMIZER_ADAM;
  if (name == "adagrad") return MERON_OPTIMIZER_ADAGRAD;
  if (name == "lion") return MERON_OPTIMIZER_LION;
  if (name == "sgd") return MERON_OPTIMIZER_SGD;
  return static_cast<meron_optimizer_kind>(to_integer(name));
}

void optimizer(Session& session, const Statement& statement) {
  const std::vector<meron_unit> units = session.units(statement);
  meron_optimizer_options options{};
  call(meron_optimizer_rule_init, &options, sizeof options,
       kind_of(statement.get("kind", "adamw")));
  options.learning_rate = statement.number("lr", options.learning_rate);
  options.beta1 = statement.number("beta1", options.beta1);
  options.beta2 = statement.number("beta2", options.beta2);
  options.epsilon = statement.number("epsilon", options.epsilon);
  options.weight_decay = statement.number("weight_decay", options.weight_decay);
  options.max_norm = statement.number("max_norm", options.max_norm);
  options.dampening = statement.number("dampening", options.dampening);
  options.nesterov = static_cast<uint32_t>(statement.number("nesterov", options.nesterov));
  options.lr_decay = statement.number("lr_decay", options.lr_decay);
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
  check_equal("the number of groups", info.groups, statement.number("groups", info.groups));
  check_equal("the number of states", info.states, statement.number("states", info.states));
  const auto bytes = static_cast<double>(info.nvme_bytes);
  check_equal("the bytes on nvme", bytes, statement.number("nvme_bytes", bytes));
}

uint32_t group_number(const Statement& statement) {
  return static_cast<uint32_t>(to_integer(statement.get("number")));
}

// The numbers of a group, those that the statement gives instead of its own.
meron_optimizer_group group_of(meron_optimizer optimizer, uint32_t number,
                               const Statement& statement) {
  meron_optimizer_group group{};
  call(meron_optimizer_group_init, &group, sizeof group);
  call(meron_optimizer_get_group, &group, optimizer, number);
  group.learning_rate = statement.number("lr", group.learning_rate);
  group.beta1 = statement.number("beta1", group.beta1);
  group.beta2 = statement.number("beta2", group.beta2);
  group.epsilon = statement.number("epsilon", group.epsilon);
  group.weight_decay = statement.number("weight_decay", group.weight_decay);
  group.lr_decay = statement.number("lr_decay", group.lr_decay);
  return group;
}

void optimizer_group(Session& session, const Statement& statement) {
  const meron_optimizer optimizer = session.find<Optimizer>(statement.name).handle;
  std::vector<meron_param> params;
  for (const std::string& name : statement.list("params")) {
    params.push_back(session.find<Param>(name).handle);
  }
  const meron_optimizer_group group = group_of(optimizer, 0, statement);
  uint32_t number = 0;
  call(meron_optimizer_add_group, &number, optimizer, params.data(), params.size(), &group);
  check_equal("the group's number", number, statement.number("number", number));
}

void set_optimizer_group(Session& session, const Statement& statement) {
  const meron_optimizer optimizer = session.find<Optimizer>(statement.name).handle;
  const uint32_t number = group_number(statement);
  const meron_optimizer_group group = group_of(optimizer, number, statement);
  call(meron_optimizer_set_group, optimizer, number, &group);
}

void optimizer_group_is(Session& session, const Statement& statement) {
  meron_optimizer_group group{};
  group.struct_size = sizeof group;
  call(meron_optimizer_get_group, &group, session.find<Optimizer>(statement.name).handle,
       group_number(statement));
  const std::pair<const char*, double> found[] = {{"lr", group.learning_rate},
                                                  {"beta1", group.beta1},
                                                  {"beta2", group.beta2},
                                                  {"epsilon", group.epsilon},
                                                  {"weight_decay", group.weight_decay},
                                                  {"lr_decay", group.lr_decay}};
  for (const auto& [name, value] : found) check_equal(name, value, statement.number(name, value));
}

void learning_rate(Session& session, const Statement& statement) {
  call(meron_optimizer_set_learning_rate, session.find<Optimizer>(statement.name).handle,
       to_number(statement.get("lr")));
}

void set_steps(Session& session, const Statement& statement) {
  call(meron_optimizer_set_steps, session.find<Optimizer>(statement.name).handle,
       static_cast<uint64_t>(to_number(statement.get("steps"))));
}

void skip(Session& session, const Statement& statement) {
  std::vector<meron_param> params;
  for (const std::string& name : statement.list("params")) {
    params.push_back(session.find<Param>(name).handle);
  }
  call(meron_optimizer_set_skipped, session.find<Optimizer>(statement.name).handle, params.data(),
       params.size());
}

void param_steps(Session& session, const Statement& statement) {
  uint64_t steps = 0;
  call(meron_optimizer_param_steps, &steps, session.find<Optimizer>(statement.name).handle,
       session.find<Param>(statement.get("param")).handle);
  check_equal("steps", static_cast<double>(steps), to_number(statement.get("is")));
}

void set_param_steps(Session& session, const Statement& statement) {
  call(meron_optimizer_set_param_steps, session.find<Optimizer>(statement.name).handle,
       session.find<Param>(statement.get("param")).handle,
       static_cast<uint64_t>(to_number(statement.get("steps"))));
}

meron_optimizer_state state_of(const std::string& name) {
  if (name == "master") return MERON_OPTIMIZER_STATE_MASTER;
  if (name == "exp_avg") return MERON_OPTIMIZER_STATE_EXP_AVG;
  if (name == "exp_avg_sq") return MERON_OPTIMIZER_STATE_EXP_AVG_SQ;
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

uint64_t count_of(const Statement& statement, const meron_param_info& info) {
  return static_cast<uint64_t>(statement.number("count", static_cast<double>(info.shard_count)));
}

void state_read(Session& session, const Statement& statement) {
  const meron_param param = session.find<Param>(statement.get("param")).handle;
  const meron_param_info info = info_of(param);
  std::vector<float> out(count_of(statement, info), -1.0f);
  call(meron_optimizer_read_state, out.data(), out.size(),
       session.find<Optimizer>(statement.name).handle, param, state_of(statement.get("state")));
  session.check_data(statement, MERON_F32, out.data(), out.size(), info.shard_offset);
}

void offload(Session& session, const Statement& statement) {
  const std::string folder = statement.get("folder", "");
  call(meron_optimizer_offload, session.find<Optimizer>(statement.name).handle,
       folder.empty() ? nullptr : folder.c_str());
}

void reload(Session& session, const Statement& statement) {
  call(meron_optimizer_reload, session.find<Optimizer>(statement.name).handle);
}

void state_write(Session& session, const Statement& statement) {
  const meron_param param = session.find<Param>(statement.get("param")).handle;
  const meron_param_info info = info_of(param);
  const uint64_t count = count_of(statement, info);
  const std::vector<std::byte> data =
      stored(session.values(statement.get("with")), MERON_F32, count, info.shard_offset);
  call(meron_optimizer_write_state, session.find<Optimizer>(statement.name).handle, param,
       state_of(statement.get("state")), reinterpret_cast<const float*>(data.data()), count);
}

}  // namespace

Operations training_operations() {
  return {{"gradient", gradient},
          {"reduce", reduce},
          {"reduce_finish", reduce_finish},
          {"reduce_wait", reduce_wait},
          {"reduced", reduced},
          {"clip", clip},
          {"discard", discard},
          {"destroy", destroy},
          {"optimizer", optimizer},
          {"step", step},
          {"optimizer_is", optimizer_is},
          {"learning_rate", learning_rate},
          {"set_steps", set_steps},
          {"skip", skip},
          {"param_steps", param_steps},
          {"set_param_steps", set_param_steps},
          {"state", state},
          {"optimizer_group", optimizer_group},
          {"set_optimizer_group", set_optimizer_group},
          {"optimizer_group_is", optimizer_group_is},
          {"state_read", state_read},
          {"state_write", state_write},
          {"offload", offload},
          {"reload", reload}};
}

}  // namespace conformance
