// SPDX-License-Identifier: Apache-2.0
// Destroys a unit on all ranks of a group, in two collective calls:
//
//   agreeing   no rank has an objection. Each waits until none of its own operations uses the unit,
//              a peer's memory of it included.
//   leaving    each rank has removed the unit from its own lists. When all have, no rank touches
//   its
//              memory, and each releases its own.
//
// The unit's ranges of the shared segment are reusable after the next destruction: only then has
// every rank cleared its words there. Ranks allocate these ranges without messages, so no unit or
// group is made between the two calls: all ranks then allocate the same ranges.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/hash.h"
#include "engine/context.h"
#include "gradient/gradient.h"

namespace meron {
namespace {

class DestroyOperation final : public Operation {
 public:
  // `gathered` returns true while a released gather of the unit is still under way.
  DestroyOperation(std::shared_ptr<Unit> unit, Deadline deadline, bool leaving,
                   std::function<bool()> gathered)
      : Operation(unit->channel(), deadline),
        unit_(std::move(unit)),
        leaving_(leaving),
        gathered_(std::move(gathered)) {}

  Result<bool> advance() override {
    if (!leaving_ && (gathered_() || !unit_->quiet())) return false;
    if (!channel_.not_begun(sequence()).empty()) return false;
    MERON_TRY(channel_.verify(sequence()));
    return true;
  }
  std::vector<int> missing() const override { return channel_.not_begun(sequence()); }
  std::string waits_for_drive() const override {
    return leaving_ ? std::string() : unit_->drive_text();
  }
  std::string describe() const override {
    return fmt::format("destruction of unit '{}'", unit_->name());
  }

 private:
  std::shared_ptr<Unit> unit_;
  const bool leaving_;
  const std::function<bool()> gathered_;
};

}  // namespace

Error Context::destroyed_error(const Unit& unit) {
  return Error(MERON_E_STATE, fmt::format("unit '{}' is being destroyed", unit.name()),
               "destroy it to the end, and do not use it any more")
      .on(unit.name());
}

Status Context::check_window_settled() const {
  if (destruction_.phase == Destruction::Phase::none) return Ok{};
  return destroyed_error(*destruction_.unit);
}

// Makes the first call, or takes the step that follows the call that has ended.
Status Context::advance_destruction(Held& held, const std::shared_ptr<Unit>& unit) {
  using Phase = Destruction::Phase;
  Channel& channel = unit->channel();
  const auto make_call = [&](bool leaving) -> Status {
    MERON_ASSIGN(const uint64_t sequence,
                 post(channel, {CallKind::destroy_unit, unit->name(), unit->bytes(),
                                hash_combine(leaving ? 1 : 0, unit->version())}));
    const auto gathered = [this, gone = unit.get()] {
      return std::any_of(
          pending_.all().begin(), pending_.all().end(), [gone](const auto& operation) {
            const auto* gather = dynamic_cast<const GatherOperation*>(operation.get());
            if (gather == nullptr || gather->ended()) return false;
            const auto& units = gather->units();
            return std::any_of(units.begin(), units.end(),
                               [gone](const auto& each) { return each.get() == gone; });
          });
    };
    auto operation = std::make_shared<DestroyOperation>(unit, rank_->deadline(), leaving, gathered);
    operation->set_sequence(sequence);
    destruction_.operation = operation;
    submit(held, operation);
    return Ok{};
  };
  MERON_TRY(await_room(held, channel));
  switch (destruction_.phase) {
    case Phase::none:
      MERON_TRY(channel.status());
      MERON_TRY(unit->check_destroyable());
      MERON_TRY(unit->gradient().check_destroyable());
      MERON_TRY(check_no_gradient_begins(*unit));
      destruction_.unit = unit;
      destruction_.phase = Phase::agreeing;
      unit->destroying = true;
      return make_call(false);
    case Phase::agreeing:
      unit->detach();
      unit->gradient().detach();
      std::erase(units_, unit);
      destruction_.phase = Phase::leaving;
      return make_call(true);
    case Phase::leaving:
      transport_->window_recycle(unit->axes().number);
      unit->gradient().give_back();
      unit->release_memory();
      control_bytes_ -= sizeof(UnitSlot) * static_cast<uint64_t>(channel.size());
      for (const auto& param : unit->params()) names_.params.erase(param->desc.name);
      names_.units.erase(unit->name());
      destruction_ = {};
      return Ok{};
  }
  return Ok{};
}

Status Context::destroy_unit(const std::shared_ptr<Unit>& unit) {
  using Phase = Destruction::Phase;
  // Kept to the end, so that calls of other threads come before or after it on every rank.
  MERON_ASSIGN([[maybe_unused]] const Turn turn, turn_when_copied());
  std::shared_ptr<Operation> operation;
  {
    auto held = lock();
    MERON_TRY(check_open());
    if (destruction_.phase == Phase::none) {
      Status begun = advance_destruction(held, unit);
      if (!begun.ok()) {
        destruction_ = {};
        return begun;
      }
    } else if (destruction_.unit != unit) {  // which was interrupted
      return destroyed_error(*destruction_.unit);
    }
    operation = destruction_.operation;
  }
  while (true) {
    const Result<bool> ended = wait(operation, -1);
    auto held = lock();
    Status next = ended.ok() ? advance_destruction(held, unit) : Status(ended.error());
    if (next.ok() && destruction_.phase != Phase::none) {
      operation = destruction_.operation;
      continue;
    }
    // If the group broke, its error stays. If this rank was interrupted, the next call continues.
    if (!next.ok() && next.error().code() != MERON_E_CANCELLED) destruction_ = {};
    return next;
  }
}

}  // namespace meron
