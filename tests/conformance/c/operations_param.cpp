// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

// "3x4" as sizes; "scalar" has none.
std::vector<int64_t> shape_of(const std::string& text) {
  std::vector<int64_t> shape;
  if (text == "scalar") return shape;
  for (const std::string& size : split(text, 'x')) shape.push_back(to_integer(size));
  return shape;
}

void param(Session& session, const Statement& statement) {
  const std::vector<int64_t> shape = shape_of(statement.get("shape"));
  const std::string name = statement.get("name", statement.name);
  meron_param_desc desc{};
  call(meron_param_desc_init, &desc, sizeof desc);
  desc.dtype = dtype_of(statement.get("dtype"));
  desc.name = name.c_str();
  desc.shape = shape.data();
  desc.dims = static_cast<uint32_t>(shape.size());
  desc.frozen = static_cast<uint32_t>(statement.number("frozen", 0));
  if (statement.has("group")) desc.group = session.group(statement.get("group")).handle;
  meron_param param{};
  call(meron_param_register, &param, session.current().handle,
       static_cast<const meron_param_desc*>(&desc));
  session.keep(statement.name, std::make_unique<Param>(param));
}

void param_is(Session& session, const Statement& statement) {
  const meron_param param = session.find<Param>(statement.name).handle;
  const meron_param_info info = info_of(param);
  if (statement.has("shape")) {
    const std::vector<int64_t> shape = shape_of(statement.get("shape"));
    check(std::vector<int64_t>(info.shape, info.shape + info.dims) == shape, "another shape");
  }
  if (statement.has("dtype")) {
    check_equal("the dtype", name_of(info.dtype), statement.get("dtype"));
  }
  check_equal("the count", static_cast<double>(info.count),
              statement.number("count", static_cast<double>(info.count)));
  check_equal("frozen", info.frozen, statement.number("frozen", info.frozen));
  const char* name = nullptr;
  call(meron_param_name, &name, param);
  check_equal("the name", name, statement.get("name", name));
}

void shard_range(Session& session, const Statement& statement) {
  const meron_param_info info = info_of(session.find<Param>(statement.name).handle);
  check(info.shard_offset + info.shard_count <= info.count, "owns more than there is");
  auto count = static_cast<float>(info.shard_count);
  meron_future future{};
  call(meron_all_reduce_begin, &future, session.current().world->handle, static_cast<void*>(&count),
       size_t{1}, meron_dtype{MERON_F32}, meron_reduce_op{MERON_REDUCE_OP_SUM});
  finish(future);
  const double copies = statement.get("all") == "1" ? session.setup.world : 1;
  check_equal("what all ranks own", static_cast<double>(count),
              copies * static_cast<double>(info.count));
}

void unit(Session& session, const Statement& statement) {
  std::vector<meron_param> params;
  for (const std::string& each : statement.list("params")) {
    params.push_back(session.find<Param>(each).handle);
  }
  meron_unit unit{};
  call(meron_unit_create, &unit, session.current().handle,
       statement.get("name", statement.name).c_str(),
       static_cast<const meron_param*>(params.data()), params.size());
  session.keep(statement.name, std::make_unique<Unit>(unit, params));
}

// 0, or above 0 and at most what is given.
void check_error(const Statement& statement, const std::string& name, double error, double worst) {
  if (!statement.has(name)) return;
  const double most = statement.number(name, 0);
  for (const double found : {error, worst}) {
    check(most == 0 ? found == 0 : found > 0 && found <= most,
          name + " is " + std::to_string(found) + ", not up to " + statement.get(name));
  }
}

// The names of the unit and of its params.
void check_members(meron_unit unit, uint64_t count, const Statement& statement) {
  const char* name = nullptr;
  call(meron_unit_name, &name, unit);
  check_equal("the name", std::string(name), statement.get("name", name));
  std::string params;
  for (uint64_t i = 0; i < count; ++i) {
    meron_param param{};
    call(meron_unit_param, &param, unit, i);
    call(meron_param_name, &name, param);
    if (i != 0) params += ',';
    params += name;
    call(meron_param_release, param);
  }
  check_equal("the params", params, statement.get("params", params));
}

void check_flats(meron_unit unit, uint64_t count, const Statement& statement) {
  std::string flats;
  for (uint64_t i = 0; i < count; ++i) {
    const meron_flat_info flat = flat_of(unit, i);
    if (i != 0) flats += ',';
    flats += name_of(flat.dtype) + ":" + std::to_string(flat.elements);
  }
  check_equal("the flats", flats, statement.get("flats", flats));
}

void unit_is(Session& session, const Statement& statement) {
  meron_unit_info info{};
  info.struct_size = sizeof info;
  call(meron_unit_get_info, &info, session.find<Unit>(statement.name).handle);
  static const char* const kStates[] = {"partitioned", "gathering", "available", "updating"};
  const std::string state = kStates[info.state];
  check_equal("the state", state, statement.get("state", state));
  const auto version = static_cast<double>(info.version);
  check_equal("the version", version, statement.number("version", version));
  check_equal("the number of leases", info.leases, statement.number("leases", info.leases));
  check_equal("reduced", info.reduced, statement.number("reduced", info.reduced));
  static const char* const kCodecs[] = {"none", "bf16", "int8", "int4"};
  const std::string param = kCodecs[info.param_codec], gradient = kCodecs[info.gradient_codec];
  check_equal("param_codec", param, statement.get("param_codec", param));
  check_equal("gradient_codec", gradient, statement.get("gradient_codec", gradient));
  check_members(session.find<Unit>(statement.name).handle, info.params, statement);
  check_flats(session.find<Unit>(statement.name).handle, info.flats, statement);
  check_error(statement, "param_error", info.param_error, info.param_worst_block);
  check_error(statement, "gradient_error", info.gradient_error, info.gradient_worst_block);
}

void update(Session& session, const Statement& statement) {
  const std::vector<meron_unit> units = session.units(statement);
  meron_future update{};
  call(meron_update_begin, &update, units.data(), units.size());
  auto owned_update = std::make_unique<Update>(update);
  call(meron_future_wait, update, int64_t{MERON_TIMEOUT_DEFAULT});
  session.keep(statement.name, std::move(owned_update));
}

void write(Session& session, const Statement& statement) {
  const meron_param param = session.find<Param>(statement.get("param")).handle;
  const meron_param_info info = info_of(param);
  const meron_dtype dtype = statement.has("dtype") ? dtype_of(statement.get("dtype")) : info.dtype;
  const auto count =
      static_cast<uint64_t>(statement.number("count", static_cast<double>(info.count)));
  const std::vector<std::byte> data = stored(session.values(statement.get("with")), dtype, count);
  call(meron_update_write, session.find<Update>(statement.name).handle, param,
       static_cast<const void*>(data.data()), count, dtype);
}

void write_view(Session& session, const Statement& statement) {
  meron_view view{};
  call(meron_update_view, &view, session.find<Update>(statement.name).handle,
       session.find<Param>(statement.get("param")).handle);
  check(view.writable == 1, "the view is not writable");
  const Values values = session.values(statement.get("with"));
  for (uint64_t i = 0; i < view.count; ++i) {
    if (statement.has("before")) {
      check_equal("element " + std::to_string(view.offset + i), load(view.dtype, view.data, i),
                  session.values(statement.get("before")).at(view.offset + i));
    }
    store(view.dtype, view.data, i, values.at(view.offset + i));
  }
}

void publish(Session& session, const Statement& statement) {
  Update& update = session.find<Update>(statement.name);
  call(meron_update_publish, update.handle);
  update.ended();
}

}  // namespace

Operations param_operations() {
  return {{"param", param}, {"param_is", param_is},     {"shard_range", shard_range},
          {"unit", unit},   {"unit_is", unit_is},       {"update", update},
          {"write", write}, {"write_view", write_view}, {"publish", publish}};
}

}  // namespace conformance
