// SPDX-License-Identifier: Apache-2.0
#include "meron/param.h"

#include <fmt/format.h>

#include <algorithm>

#include "capi/future_kinds.h"
#include "capi/guard.h"
#include "capi/view.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

static_assert(MERON_MAX_DIMS == kMaxDims);

Result<TensorDesc> to_tensor(const meron_param_desc& given) {
  MERON_TRY(need(given.name, "desc.name"));
  TensorDesc desc;
  desc.name = given.name;
  MERON_ASSIGN(desc.dtype, to_dtype(given.dtype));
  if (given.dims > MERON_MAX_DIMS) {
    return Error(MERON_E_ARGUMENT, fmt::format("{} dimensions were given", given.dims),
                 fmt::format("give at most {}", MERON_MAX_DIMS))
        .on(desc.name);
  }
  if (given.dims > 0) MERON_TRY(need(given.shape, "desc.shape"));
  for (uint32_t i = 0; i < given.dims; ++i) {
    if (given.shape[i] < 0) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("dimension {} of '{}' is {}", i, desc.name, given.shape[i]),
                   "give sizes of at least 0")
          .on(desc.name);
    }
    desc.shape.push_back(static_cast<uint64_t>(given.shape[i]));
  }
  if (given.frozen > 1) return unknown_enum("desc.frozen", given.frozen);
  desc.trainable = given.frozen == 0;
  return desc;
}

// Checks that update_view, update_write and update_publish may run.
Status check_writable(UpdateOperation& update) {
  if (update.error()) {
    update.set_delivered();
    return *update.error();
  }
  if (update.ended()) return Ok{};
  return Error(MERON_E_STATE, "other ranks may still read what the update is to write",
               "wait for the update first");
}

Status check_member(const UpdateOperation& update, const Param& param) {
  if (update.contains(param)) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("param '{}' is in none of the update's units", param.desc.name),
               "begin the update with the unit that has the param")
      .on(param.desc.name);
}

}  // namespace

extern "C" {

meron_status meron_param_desc_init(meron_param_desc* desc, size_t struct_size, meron_error** err) {
  return guard("param_desc_init", err, [&]() -> Status {
    const meron_param_desc initial = MERON_PARAM_DESC_INIT;
    return init_options(desc, struct_size, initial);
  });
}

meron_status meron_param_register(meron_param* out, meron_context context,
                                  const meron_param_desc* desc, meron_error** err) {
  return guard("param_register", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(desc, "desc"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    const meron_param_desc defaults = MERON_PARAM_DESC_INIT;
    MERON_ASSIGN(const meron_param_desc given, read_options(desc, defaults, "desc"));
    MERON_ASSIGN(TensorDesc tensor, to_tensor(given));
    Channel* channel = &holder->context->world();
    if (given.group.id != 0) {
      MERON_ASSIGN(const auto group, get<GroupHolder>(given.group));
      if (group->context != holder->context) {
        return Error(MERON_E_HANDLE, "the group belongs to another context",
                     "pass a group of this context");
      }
      channel = group->value;
    }
    MERON_ASSIGN(auto handle, NewHandle<ParamHolder>::make(holder->context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_ASSIGN(auto param, holder->context->register_param(held, std::move(tensor), *channel));
    handle.issue(out, std::move(param));
    return Ok{};
  });
}

meron_status meron_param_get_info(meron_param_info* out, meron_param param, meron_error** err) {
  return guard("param_get_info", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ParamHolder>(param, rank));
    const Param& value = *holder->value;
    meron_param_info info{};
    info.dtype = static_cast<meron_dtype>(value.desc.dtype);
    info.dims = static_cast<uint32_t>(value.desc.shape.size());
    info.frozen = value.desc.trainable ? 0 : 1;
    for (size_t i = 0; i < value.desc.shape.size(); ++i) {
      info.shape[i] = static_cast<int64_t>(value.desc.shape[i]);
    }
    info.count = value.count;
    auto held = holder->context->lock();
    if (value.unit != nullptr) {
      const Range part = part_of(value, value.unit->flat_of(value).owned);
      info.shard_offset = part.begin;
      info.shard_count = part.size();
      info.flat = value.place.flat;
      info.flat_offset = value.place.offset;
    }
    return write_info(out, info, "out");
  });
}

meron_status meron_param_name(const char** out, meron_param param, meron_error** err) {
  return guard("param_name", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ParamHolder>(param, rank));
    *out = holder->value->desc.name.c_str();
    return Ok{};
  });
}

meron_status meron_param_release(meron_param param, meron_error** err) {
  return guard("param_release", err, [&]() -> Status {
    MERON_ASSIGN(const auto holder, take<ParamHolder>(param));
    holder->context->release_in_turn(
        [&context = *holder->context, value = holder->value] { context.forget(*value); });
    return Ok{};
  });
}

meron_status meron_unit_create(meron_unit* out, meron_context context, const char* name,
                               const meron_param* params, size_t count, meron_error** err) {
  return guard("unit_create", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(name, "name"));
    if (count > 0) MERON_TRY(need(params, "params"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    std::vector<std::shared_ptr<Param>> members;
    for (size_t i = 0; i < count; ++i) {
      MERON_ASSIGN(const auto param, get<ParamHolder>(params[i]));
      if (param->context != holder->context) {
        return Error(MERON_E_HANDLE,
                     fmt::format("param '{}' belongs to another context", param->value->desc.name),
                     "pass params of this context");
      }
      members.push_back(param->value);
    }
    MERON_ASSIGN(auto handle, NewHandle<UnitHolder>::make(holder->context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_ASSIGN(auto unit, holder->context->create_unit(held, name, std::move(members)));
    handle.issue(out, std::move(unit));
    return Ok{};
  });
}

meron_status meron_unit_get_info(meron_unit_info* out, meron_unit unit, meron_error** err) {
  return guard("unit_get_info", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    auto held = holder->context->lock();
    Unit& value = *holder->value;
    meron_unit_info info{};
    info.state = static_cast<meron_unit_state>(value.state());
    info.version = value.version();
    info.leases = value.leases();
    info.reduced = value.gradient().state() == GradientState::ready ? 1 : 0;
    info.param_codec = static_cast<meron_codec>(value.encoding.codec.kind);
    info.gradient_codec = static_cast<meron_codec>(value.gradient().codec.kind);
    info.param_error = value.encoding.error;
    info.param_worst_block = static_cast<double>(value.encoding.worst);
    info.gradient_error = value.gradient().error.relative;
    info.gradient_worst_block = static_cast<double>(value.gradient().error.worst);
    info.params = value.params().size();
    info.flats = value.flats().size();
    return write_info(out, info, "out");
  });
}

meron_status meron_unit_name(const char** out, meron_unit unit, meron_error** err) {
  return guard("unit_name", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    *out = holder->value->name().c_str();
    return Ok{};
  });
}

meron_status meron_unit_param(meron_param* out, meron_unit unit, uint64_t index,
                              meron_error** err) {
  return guard("unit_param", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    const auto& params = holder->value->params();
    MERON_TRY(check_index(*holder->value, "params", params.size(), index));
    return put<ParamHolder>(out, holder->context, params[index]);
  });
}

meron_status meron_unit_flat(meron_flat_info* out, meron_unit unit, uint64_t index,
                             meron_error** err) {
  return guard("unit_flat", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    Unit& value = *holder->value;
    MERON_TRY(check_index(value, "flats", value.flats().size(), index));
    const Flat& flat = value.flats()[index];
    meron_flat_info info{};
    info.dtype = static_cast<meron_dtype>(flat.desc.dtype);
    info.frozen = flat.desc.trainable ? 0 : 1;
    info.elements = flat.desc.elements;
    info.bytes = flat.value_bytes();
    return write_info(out, info, "out");
  });
}

meron_status meron_unit_destroy(meron_unit unit, meron_error** err) {
  return guard("unit_destroy", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(unit, rank));
    const std::shared_ptr<Unit>& target = holder->value;
    MERON_TRY(holder->context->destroy_unit(target));
    const auto& params = target->params();
    HandleTable::instance().erase_some(holder->context.get(), [&](const Object& object) {
      if (object.kind == Kind::unit) return static_cast<const UnitHolder&>(object).value == target;
      return object.kind == Kind::param &&
             std::find(params.begin(), params.end(),
                       static_cast<const ParamHolder&>(object).value) != params.end();
    });
    return Ok{};
  });
}

meron_status meron_unit_release(meron_unit unit, meron_error** err) {
  return guard("unit_release", err, [&]() -> Status {
    MERON_TRY(take<UnitHolder>(unit));
    return Ok{};
  });
}

meron_status meron_update_begin(meron_future* out, const meron_unit* units, size_t count,
                                meron_error** err) {
  return guard("update_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(Units found, get_units(units, count));
    rank = found.context->transport().rank();
    MERON_ASSIGN(auto handle, NewHandle<UpdateHolder>::make(found.context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, found.context->turn());
    auto held = found.context->lock();
    MERON_ASSIGN(auto update, found.context->update(held, std::move(found.units)));
    handle.issue(out, std::move(update));
    return Ok{};
  });
}

meron_status meron_update_view(meron_view* out, meron_future update, meron_param param,
                               meron_error** err) {
  return guard("update_view", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<UpdateHolder>(update, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    auto held = holder->context->lock();
    MERON_TRY(check_writable(*holder->value));
    MERON_TRY(check_member(*holder->value, *target->value));
    std::byte* data = nullptr;
    const Range part = holder->value->view(*target->value, &data);
    *out = make_view(data, part, target->value->desc.dtype, true);
    return Ok{};
  });
}

meron_status meron_update_write(meron_future update, meron_param param, const void* data,
                                uint64_t count, meron_dtype dtype, meron_error** err) {
  return guard("update_write", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UpdateHolder>(update, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    MERON_ASSIGN(const DType type, to_dtype(dtype));
    const Param& value = *target->value;
    if (count != value.count) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("param '{}' has {} elements, {} were given", value.desc.name,
                               value.count, count),
                   "pass the whole tensor, also where this rank keeps a part of it only")
          .on(value.desc.name);
    }
    if (count > 0) MERON_TRY(need(data, "data"));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_TRY(check_writable(*holder->value));
    MERON_TRY(check_member(*holder->value, value));
    MERON_TRY(holder->value->write(value, static_cast<const std::byte*>(data), type));
    return Ok{};
  });
}

meron_status meron_update_publish(meron_future update, meron_error** err) {
  return guard("update_publish", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<UpdateHolder>(update, rank));
    {
      MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
      auto held = holder->context->lock();
      MERON_TRY(check_writable(*holder->value));
      MERON_TRY(holder->value->publish());
    }
    MERON_TRY(take<UpdateHolder>(update));
    return Ok{};
  });
}

}  // extern "C"

namespace meron::capi {

Result<bool> await_update(meron_future future, int64_t timeout_ns, bool tells, int& rank) {
  MERON_ASSIGN(const auto holder, get<UpdateHolder>(future, rank));
  Result<bool> ended = holder->context->wait(holder->value, timeout_ns);
  if (tells) holder->context->note_delivered(*holder->value, ended);
  return ended;
}

Status release_update(meron_future future, int& rank) {
  MERON_ASSIGN(const auto holder, take<UpdateHolder>(future));
  rank = holder->context->transport().rank();
  const auto give_up = [rank, &context = *holder->context, update = holder->value] {
    UpdateOperation& given_up = *update;
    if (given_up.error()) return context.leave(update);
    // If nothing was written, publishes the unchanged values, as peers expect. A partly written
    // version must not be published.
    if (given_up.ended() && !given_up.touched()) {
      (void)given_up.publish().ok();
      return;
    }
    (void)given_up.channel().fail(
        Error(MERON_E_ABORTED,
              fmt::format("rank {} gave up the {} {}", rank, given_up.describe(),
                          given_up.ended() ? "after it had begun to write its values"
                                           : "before it could write"),
              given_up.ended()
                  ? "see the error of that rank; prepare all values before the update begins"
                  : "wait for an update, also when the call is interrupted, and publish it")
            .during("update")
            .blaming(rank));
  };
  holder->context->release_in_turn(give_up);
  return Ok{};
}

}  // namespace meron::capi
