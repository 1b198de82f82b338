// SPDX-License-Identifier: Apache-2.0
#include "engine/unit_schedule.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "engine/context.h"

namespace meron {
namespace {

std::vector<uint64_t> elements_of(const std::vector<std::shared_ptr<Unit>>& units) {
  std::vector<uint64_t> elements;
  elements.reserve(units.size());
  for (const auto& unit : units) {
    uint64_t sum = 0;
    for (const auto& param : unit->params()) sum += param->count;
    elements.push_back(sum);
  }
  return elements;
}

}  // namespace

UnitSchedule::UnitSchedule(Context& context, std::vector<std::shared_ptr<Unit>> units,
                           const ScheduleOptions& options, ViewMemory memory)
    : context_(context),
      memory_(memory),
      units_(std::move(units)),
      gathers_(units_.size()),
      schedule_(*this, elements_of(units_), options) {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    index_.emplace(units_[unit].get(), unit);
    ++units_[unit]->schedules;
  }
}

UnitSchedule::~UnitSchedule() {
  for (const auto& unit : units_) --unit->schedules;
}

Result<bool> UnitSchedule::enter(size_t unit, int64_t timeout_ns) {
  std::shared_ptr<GatherOperation> gather;
  {
    MERON_ASSIGN([[maybe_unused]] const Turn turn, context_.turn());
    auto held = context_.lock();
    MERON_TRY(context_.check_open());
    MERON_ASSIGN(const bool full, schedule_.enter(unit));
    gather = gathers_[unit];
    if (full) {
      MERON_TRY(join(*gather));
      return true;
    }
    gather->begin_use(context_.rank().deadline());
  }
  const int64_t begun = now_ns();
  auto ended = context_.wait(gather, timeout_ns);
  auto held = context_.lock();
  if (gathers_[unit] != gather) {  // the uses that schedule_ counts now are not this one
    return Error(MERON_E_STATE,
                 fmt::format("unit '{}' was given back while its enter waited", name(unit)),
                 "reset or release a schedule when no thread enters its units")
        .on(name(unit));
  }
  if (ended.ok() && *ended) {
    if (Status joined = join(*gather); !joined.ok()) ended = std::move(joined).error();
  }
  schedule_.waited(unit, ended.ok() && *ended, static_cast<uint64_t>(now_ns() - begun));
  return ended;
}

Status UnitSchedule::join(GatherOperation& gather) const {
  return gather.on_device() ? gather.join(memory_.stream) : Ok{};
}

Result<FullTensor> UnitSchedule::tensor(const Param& param) const {
  const auto found = index_.find(param.unit);
  if (found == index_.end()) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("param '{}' is in none of the schedule's units", param.desc.name),
                 "make the schedule with the unit that has the param")
        .on(param.desc.name);
  }
  const auto& gather = gathers_[found->second];
  if (!schedule_.entered(found->second) || !gather || !gather->ended() || gather->error()) {
    return Error(MERON_E_STATE, fmt::format("unit '{}' is not entered", param.unit->name()),
                 "enter the unit before its tensors are used")
        .on(param.unit->name());
  }
  return gather->tensor(param);
}

// The schedule calls these, and is called with the turn and under the lock.
Status UnitSchedule::begin(size_t unit) {
  MERON_ASSIGN(gathers_[unit],
               context_.gather(*Held::here(), {units_[unit]}, GatherMode::view, {}, memory_.tier));
  return Ok{};
}

Result<bool> UnitSchedule::full(size_t unit) {
  return context_.look(*Held::here(), *gathers_[unit]);
}

Status UnitSchedule::release(size_t unit) {
  const auto gather = std::exchange(gathers_[unit], nullptr);
  if (!gather->on_device()) return gather->release();
  return gather->release(memory_.stream);
}

}  // namespace meron
