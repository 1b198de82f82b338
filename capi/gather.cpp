// SPDX-License-Identifier: Apache-2.0
#include "meron/gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capi/dlpack.h"
#include "capi/future_kinds.h"
#include "capi/guard.h"
#include "capi/view.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

// The param or flat of a destination, as errors name it.
struct Named {
  std::string what;  // "param 'w'", "flat 0 of unit 'u'"
  std::string subject;
  const char* memory;  // "for the whole tensor in the param's dtype"
};

bool contains(const Units& units, const Unit* unit) {
  return std::any_of(units.units.begin(), units.units.end(),
                     [&](const auto& each) { return each.get() == unit; });
}

// Adds the target that is in the caller's memory, of `bytes` at `data`.
Status add_target(std::vector<GatherTarget>& targets, GatherTarget target, const Named& named,
                  void* data, uint64_t bytes) {
  if (bytes != target.bytes()) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} takes {} bytes, its destination has {}", named.what,
                             target.bytes(), bytes),
                 fmt::format("pass memory {}", named.memory))
        .on(named.subject);
  }
  if (bytes > 0 && data == nullptr) {
    return Error(MERON_E_ARGUMENT, fmt::format("the destination of {} is NULL", named.what),
                 fmt::format("pass memory {}", named.memory))
        .on(named.subject);
  }
  const DeviceSide* const side = target.unit->rank().device.get();
  if (side != nullptr && bytes > 0) {
    MERON_ASSIGN(target.on_device, side->device().holds(data, "the destination of " + named.what));
  }
  target.data = static_cast<std::byte*>(data);
  targets.push_back(std::move(target));
  return Ok{};
}

Status add_flat(std::vector<GatherTarget>& targets, const Units& units,
                const meron_flat_destination& given) {
  MERON_ASSIGN(const auto holder, get<UnitHolder>(given.unit));
  Unit& unit = *holder->value;
  if (!contains(units, &unit)) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("a flat of unit '{}' has a destination, but the unit is not gathered",
                             unit.name()),
                 "gather the unit too, or leave its flats out")
        .on(unit.name());
  }
  MERON_TRY(check_index(unit, "flats", unit.flats().size(), given.flat));
  const Named named{fmt::format("flat {} of unit '{}'", given.flat, unit.name()), unit.name(),
                    "for all elements of the flat, padding included"};
  GatherTarget target = GatherTarget::of_flat(unit, given.flat);
  if (std::any_of(targets.begin(), targets.end(), [&](const GatherTarget& other) {
        return other.unit == &unit && other.flat == given.flat;
      })) {
    return Error(MERON_E_DUPLICATE, fmt::format("{} has two destinations", named.what),
                 "give each flat one destination")
        .on(named.subject);
  }
  return add_target(targets, std::move(target), named, given.data, given.bytes);
}

// The first `flats` of the targets are whole flats.
Status add_param(std::vector<GatherTarget>& targets, size_t flats, const Units& units,
                 const meron_destination& given) {
  MERON_ASSIGN(const auto holder, get<ParamHolder>(given.param));
  const Param& param = *holder->value;
  const std::string& name = param.desc.name;
  if (!contains(units, param.unit)) {
    return Error(MERON_E_ARGUMENT, fmt::format("param '{}' is in none of the gathered units", name),
                 "gather the unit that has the param")
        .on(name);
  }
  for (const GatherTarget& other : std::span(targets).first(flats)) {
    if (!other.has(param)) continue;
    return Error(MERON_E_DUPLICATE,
                 fmt::format("param '{}' has a destination, and so has flat {} of unit '{}', which "
                             "it is in",
                             name, other.flat, param.unit->name()),
                 "give the param or its flat a destination, not both")
        .on(name);
  }
  const Named named{fmt::format("param '{}'", name), name,
                    "for the whole tensor in the param's dtype"};
  return add_target(targets, GatherTarget::of_param(param), named, given.data, given.bytes);
}

Result<std::vector<GatherTarget>> caller_targets(const Units& units,
                                                 const meron_gather_options& options) {
  if (options.destination_count > 0) MERON_TRY(need(options.destinations, "destinations"));
  if (options.flat_count > 0) MERON_TRY(need(options.flats, "flats"));
  std::vector<GatherTarget> targets;
  for (uint64_t i = 0; i < options.flat_count; ++i) {
    MERON_TRY(add_flat(targets, units, options.flats[i]));
  }
  const size_t flats = targets.size();
  for (uint64_t i = 0; i < options.destination_count; ++i) {
    MERON_TRY(add_param(targets, flats, units, options.destinations[i]));
  }
  return targets;
}

// Makes later uploads wait for the work queued on the caller's stream.
Status follow_stream(DeviceSide& side, void* stream) {
  MERON_TRY(side.device().check_stream(stream));
  MERON_ASSIGN(const DeviceEvent before, side.device().record(stream));
  return side.device().wait(side.up(), before);
}

Result<DeviceSide*> need_device(const Context& context) {
  DeviceSide* const side = context.rank().device.get();
  if (side != nullptr) return side;
  return Error(MERON_E_ARGUMENT, "the context was opened without a device, so there are no streams",
               "open it with a device, or wait for the gather and release it without a stream");
}

Status check_full(GatherOperation& gather) {
  if (gather.error()) {
    gather.set_delivered();
    return *gather.error();
  }
  if (gather.ended()) return Ok{};
  return Error(MERON_E_STATE, "the tensors are not full yet", "wait for the gather first");
}

// Of a gather that was released: nothing is written to the caller's memory once this returns.
void await_last_write(const GatherHolder& holder) {
  if (holder.value->mode() == GatherMode::into) holder.context->await_still(*holder.value);
}

}  // namespace

extern "C" {

meron_status meron_gather_options_init(meron_gather_options* options, size_t struct_size,
                                       meron_error** err) {
  return guard("gather_options_init", err, [&]() -> Status {
    const meron_gather_options initial = MERON_GATHER_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_gather_begin(meron_future* out, const meron_unit* units, size_t count,
                                const meron_gather_options* options, meron_error** err) {
  return guard("gather_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    const meron_gather_options defaults = MERON_GATHER_OPTIONS_INIT;
    MERON_ASSIGN(const meron_gather_options given, read_options(options, defaults, "options"));
    if (given.mode < MERON_GATHER_VIEW || given.mode > MERON_GATHER_INTO) {
      return unknown_enum("options.mode", given.mode);
    }
    if (given.tier < MERON_TIER_DEVICE || given.tier > MERON_TIER_HOST) {
      return unknown_enum("options.tier", given.tier);
    }
    if (given.reserved_0 != 0) return unknown_enum("options.reserved_0", given.reserved_0);
    MERON_ASSIGN(Units found, get_units(units, count));
    rank = found.context->transport().rank();
    const GatherMode mode = static_cast<GatherMode>(given.mode);
    MERON_ASSIGN(auto handle, NewHandle<GatherHolder>::make(found.context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, found.context->turn());
    auto held = found.context->lock();
    std::vector<GatherTarget> targets;
    if (mode == GatherMode::into) {
      MERON_ASSIGN(targets, caller_targets(found, given));
      if (std::any_of(targets.begin(), targets.end(),
                      [](const GatherTarget& target) { return target.on_device; })) {
        MERON_TRY(follow_stream(*found.context->rank().device, given.stream));
      }
    }
    MERON_ASSIGN(auto gather,
                 found.context->gather(held, std::move(found.units), mode, std::move(targets),
                                       static_cast<ViewTier>(given.tier)));
    handle.issue(out, std::move(gather));
    return Ok{};
  });
}

meron_status meron_gather_wait_stream(meron_future gather, void* stream, int64_t timeout_ns,
                                      meron_error** err) {
  return guard("gather_wait_stream", err, [&](int& rank) -> Result<meron_status> {
    MERON_ASSIGN(const auto holder, get<GatherHolder>(gather, rank));
    MERON_ASSIGN(DeviceSide* const side, need_device(*holder->context));
    MERON_TRY(side->device().check_stream(stream));
    MERON_TRY(check_timeout(timeout_ns));
    const auto waited = holder->context->wait(holder->value, timeout_ns);
    holder->context->note_delivered(*holder->value, waited);
    if (!waited.ok() || !*waited) return progress_status(waited);
    auto held = holder->context->lock();
    if (holder->value->on_device()) MERON_TRY(holder->value->join(stream));
    return MERON_OK;
  });
}

meron_status meron_gather_view(meron_view* out, meron_future gather, meron_param param,
                               meron_error** err) {
  return guard("gather_view", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<GatherHolder>(gather, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    const Param& value = *target->value;
    auto held = holder->context->lock();
    MERON_TRY(check_full(*holder->value));
    MERON_ASSIGN(const bool may_read, holder->value->may_read());
    if (!may_read) {
      return Error(MERON_E_STATE, "the tensors are not on the device yet",
                   "wait for the gather, or make a stream wait for it, first")
          .on(value.desc.name);
    }
    const FullTensor tensor = holder->value->tensor(value);
    if (tensor.data == nullptr) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("param '{}' is not part of this gather", value.desc.name),
                   "gather the unit that has the param, and name it as a destination where those "
                   "are given")
          .on(value.desc.name);
    }
    *out = make_view(value, tensor, holder->value->mode() != GatherMode::view);
    return Ok{};
  });
}

meron_status meron_gather_dlpack(struct DLManagedTensorVersioned** out, meron_future gather,
                                 meron_param param, meron_error** err) {
  return guard("gather_dlpack", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<GatherHolder>(gather, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    auto held = holder->context->lock();
    MERON_TRY(check_full(*holder->value));
    MERON_ASSIGN(*out, export_dlpack(holder->context, holder->value, target->value));
    return Ok{};
  });
}

meron_status meron_gather_release_on_stream(meron_future gather, void* stream, meron_error** err) {
  return guard("gather_release_on_stream", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto found, get<GatherHolder>(gather, rank));
    MERON_ASSIGN(DeviceSide* const side, need_device(*found->context));
    MERON_TRY(side->device().check_stream(stream));
    MERON_ASSIGN(const auto holder, take<GatherHolder>(gather));
    const auto release = [&] {
      auto held = holder->context->lock();
      if (holder->value->error()) holder->context->leave(holder->value);
      return holder->value->release(stream);
    };
    Status released = release();
    await_last_write(*holder);
    return released;
  });
}

}  // extern "C"

namespace meron::capi {

Result<bool> await_gather(meron_future future, int64_t timeout_ns, bool tells, int& rank) {
  MERON_ASSIGN(const auto holder, get<GatherHolder>(future, rank));
  Result<bool> ended = holder->context->wait_whole(holder->value, timeout_ns);
  if (tells) holder->context->note_delivered(*holder->value, ended);
  return ended;
}

Status release_gather(meron_future future, int&) {
  MERON_ASSIGN(const auto holder, take<GatherHolder>(future));
  // Another thread may have found the holder before it was taken: it keeps its value.
  holder->context->release_soon<GatherOperation>(
      holder->value, [](Context& context, const std::shared_ptr<GatherOperation>& given_up) {
        if (given_up->error()) context.leave(given_up);
        (void)given_up->release().ok();
      });
  await_last_write(*holder);
  return Ok{};
}

}  // namespace meron::capi
