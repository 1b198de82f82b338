// SPDX-License-Identifier: Apache-2.0
#include "meron/schedule.h"

#include <fmt/format.h>

#include "capi/guard.h"
#include "capi/view.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

static_assert(MERON_SCHEDULE_KINDS == Schedule::kKinds);

Status check_index(const UnitSchedule& schedule, size_t index) {
  if (index < schedule.size()) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("index {} is beyond the schedule's {} unit{}", index, schedule.size(),
                           schedule.size() == 1 ? "" : "s"),
               "give the unit's index among those that the schedule was made of");
}

// Limits of zeros are valid for a program that chose them, so zeros alone do not show that a struct
// was not initialized.
Status check_initialized(const meron_schedule_options& options) {
  if (options.initialized == 1) return Ok{};
  if (options.initialized != 0) return unknown_enum("options.initialized", options.initialized);
  return Error(MERON_E_ARGUMENT, "options was not initialized: its initialized is 0",
               "start from MERON_SCHEDULE_OPTIONS_INIT or the init function")
      .on("options");
}

Result<ViewMemory> memory_of(Context& context, const meron_schedule_options& options) {
  if (options.tier != MERON_TIER_HOST && options.tier != MERON_TIER_DEVICE) {
    return unknown_enum("options.tier", options.tier);
  }
  const DeviceSide* const side = context.rank().device.get();
  if (options.tier == MERON_TIER_HOST || side == nullptr) return ViewMemory{};
  MERON_TRY(side->device().check_stream(options.stream));
  return ViewMemory{ViewTier::device, options.stream};
}

// Calls the schedule in turn and under the lock; for start_pass, leave, drop and reset.
template <class Call>
Status locked(meron_schedule handle, int& rank, Call&& call) {
  MERON_ASSIGN(const auto holder, get<ScheduleHolder>(handle, rank));
  MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
  auto held = holder->context->lock();
  return call(*holder->value);
}

}  // namespace

extern "C" {

meron_status meron_schedule_options_init(meron_schedule_options* options, size_t struct_size,
                                         meron_error** err) {
  return guard("schedule_options_init", err, [&]() -> Status {
    const meron_schedule_options initial = MERON_SCHEDULE_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_schedule_create(meron_schedule* out, const meron_unit* units, size_t count,
                                   const meron_schedule_options* options, meron_error** err) {
  return guard("schedule_create", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(Units found, get_units(units, count));
    rank = found.context->transport().rank();
    const meron_schedule_options defaults = MERON_SCHEDULE_OPTIONS_INIT;
    MERON_ASSIGN(const meron_schedule_options given, read_options(options, defaults, "options"));
    MERON_TRY(check_initialized(given));
    ScheduleOptions limits;
    limits.prefetch_elements = given.prefetch_elements;
    limits.max_live_elements = given.max_live_elements;
    limits.max_reuse_elements = given.max_reuse_elements;
    limits.persist_elements = given.persist_elements;
    limits.persist_total_elements = given.persist_total_elements;
    if (given.reserved_1 != 0) return unknown_enum("options.reserved_1", given.reserved_1);
    MERON_ASSIGN(const ViewMemory memory, memory_of(*found.context, given));
    MERON_ASSIGN(auto handle, NewHandle<ScheduleHolder>::make(found.context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, found.context->turn());
    auto held = found.context->lock();
    MERON_ASSIGN(auto schedule,
                 found.context->create_schedule(held, std::move(found.units), limits, memory));
    handle.issue(out, std::move(schedule));
    return Ok{};
  });
}

meron_status meron_schedule_start_pass(meron_schedule schedule, uint32_t kind, meron_error** err) {
  return guard("schedule_start_pass", err, [&](int& rank) -> Status {
    return locked(schedule, rank, [&](UnitSchedule& target) -> Status {
      if (kind >= MERON_SCHEDULE_KINDS) {
        return Error(MERON_E_ARGUMENT,
                     fmt::format("kind {} is beyond the {} that a schedule has", kind,
                                 MERON_SCHEDULE_KINDS),
                     "number the kinds of passes from 0")
            .on("kind");
      }
      return target.schedule().start_pass(kind);
    });
  });
}

meron_status meron_schedule_enter(meron_schedule schedule, size_t index, int64_t timeout_ns,
                                  meron_error** err) {
  return guard("schedule_enter", err, [&](int& rank) -> Result<meron_status> {
    MERON_TRY(check_timeout(timeout_ns));
    MERON_ASSIGN(const auto holder, get<ScheduleHolder>(schedule, rank));
    MERON_TRY(check_index(*holder->value, index));
    return progress_status(holder->value->enter(index, timeout_ns));
  });
}

meron_status meron_schedule_leave(meron_schedule schedule, size_t index, meron_error** err) {
  return guard("schedule_leave", err, [&](int& rank) -> Status {
    return locked(schedule, rank, [&](UnitSchedule& target) -> Status {
      MERON_TRY(check_index(target, index));
      return target.schedule().leave(index);
    });
  });
}

meron_status meron_schedule_view(meron_view* out, meron_schedule schedule, meron_param param,
                                 meron_error** err) {
  return guard("schedule_view", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ScheduleHolder>(schedule, rank));
    MERON_ASSIGN(const auto target, get<ParamHolder>(param));
    const Param& value = *target->value;
    auto held = holder->context->lock();
    MERON_ASSIGN(const FullTensor tensor, holder->value->tensor(value));
    *out = make_view(value, tensor, false);
    return Ok{};
  });
}

meron_status meron_schedule_drop(meron_schedule schedule, meron_error** err) {
  return guard("schedule_drop", err, [&](int& rank) -> Status {
    return locked(schedule, rank, [](UnitSchedule& target) { return target.schedule().drop(); });
  });
}

meron_status meron_schedule_reset(meron_schedule schedule, meron_error** err) {
  return guard("schedule_reset", err, [&](int& rank) -> Status {
    return locked(schedule, rank, [](UnitSchedule& target) { return target.schedule().reset(); });
  });
}

meron_status meron_schedule_get_info(meron_schedule_info* out, meron_schedule schedule,
                                     meron_error** err) {
  return guard("schedule_get_info", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ScheduleHolder>(schedule, rank));
    auto held = holder->context->lock();
    const ScheduleCounts& counts = holder->value->schedule().counts();
    meron_schedule_info info{};
    info.entered = static_cast<uint32_t>(counts.entered);
    info.units = holder->value->size();
    info.passes = counts.passes;
    info.uses = counts.uses;
    info.ready = counts.ready;
    info.ahead = counts.ahead;
    info.deviations = counts.deviations;
    info.live_elements = counts.live_elements;
    info.peak_live_elements = counts.peak_live_elements;
    info.wait_ns = counts.wait_ns;
    return write_info(out, info, "out");
  });
}

meron_status meron_schedule_release(meron_schedule schedule, meron_error** err) {
  return guard("schedule_release", err, [&]() -> Status {
    MERON_ASSIGN(const auto holder, take<ScheduleHolder>(schedule));
    holder->context->release_in_turn(
        [given_up = holder->value] { (void)given_up->schedule().reset().ok(); });
    return Ok{};
  });
}

}  // extern "C"
