// SPDX-License-Identifier: Apache-2.0
// meron/cpp/schedule.hpp: the order in which a trainer uses its units, recorded and replayed.
#ifndef MERON_CPP_SCHEDULE_HPP
#define MERON_CPP_SCHEDULE_HPP

#include <chrono>
#include <optional>
#include <utility>

#include "meron/cpp/methods.hpp"
#include "meron/cpp/param.hpp"
#include "meron/cpp/values.hpp"
#include "meron/schedule.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// A use of a unit of a schedule: its tensors are full until its destruction, which leaves the unit.
// It moves, so that a layer can keep it. Created by Schedule::enter.
class Entered {
 public:
  Entered(Entered&& other) noexcept
      : schedule_(std::exchange(other.schedule_, meron_schedule{})), index_(other.index_) {}
  Entered& operator=(Entered&& other) noexcept {
    Entered taken(std::move(other));
    std::swap(schedule_, taken.schedule_);
    std::swap(index_, taken.index_);
    return *this;
  }
  // If it fails, the schedule or its context was closed, and has left the unit.
  ~Entered() {
    if (schedule_.id != 0) static_cast<void>(meron_schedule_leave(schedule_, index_, nullptr));
  }

  // The index of the unit in the schedule.
  size_t index() const noexcept { return index_; }
  // The full tensor, read-only, valid as long as this use and the schedule.
  View view(const Param& param) const& {
    return View(detail::receive(meron_schedule_view, schedule_, param.handle()));
  }
  View view(const Param& param) const&& = delete;  // the view would outlive the use
  // Leaves the unit now, as the destructor does, and throws if that fails. Both wait only while
  // another thread of this rank begins an operation.
  void leave() {
    detail::call(meron_schedule_leave, std::exchange(schedule_, meron_schedule{}), index_);
  }

 private:
  friend class Schedule;
  Entered(meron_schedule schedule, size_t index) noexcept : schedule_(schedule), index_(index) {}

  meron_schedule schedule_;
  size_t index_;
};

// Units, the recorded orders of their uses, and the leases that follow from these. Created by
// schedule. The index in its list identifies a unit.
class Schedule : public Handle<meron_schedule, meron_schedule_release>,
                 public detail::ScheduleMethods<Schedule> {
 public:
  using Handle::Handle;

  // A pass: the forward, and backward if there is one, of a micro-batch.
  void start_pass(uint32_t kind = 0) const {
    detail::call(meron_schedule_start_pass, handle(), kind);
  }
  // Waits until the unit is full. Collective over the units' group if it is not full already.
  [[nodiscard]] Entered enter(size_t index) const {
    detail::call(meron_schedule_enter, handle(), index, int64_t{MERON_TIMEOUT_DEFAULT});
    return Entered(handle(), index);
  }
  // Returns nothing after the timeout: then the unit is not entered, and the next enter of the unit
  // continues the same use.
  [[nodiscard]] std::optional<Entered> enter_for(size_t index,
                                                 std::chrono::nanoseconds duration) const {
    if (detail::call(meron_schedule_enter, handle(), index, detail::timeout(duration)) !=
        MERON_OK) {
      return std::nullopt;
    }
    return Entered(handle(), index);
  }

  // Drops the pass, and releases all units. Call it after an exception in the trainer. Throws
  // MERON_E_STATE if a unit is entered.
  void reset() const {
    if (info().entered != 0) {
      detail::raise(Error(MERON_E_STATE, "units of the schedule are entered", "schedule",
                          "Destroy what Schedule::enter returned, and reset it then."));
    }
    detail::call(meron_schedule_reset, handle());
  }

  meron_schedule_info info() const {
    return detail::receive_info<meron_schedule_info>(meron_schedule_get_info, handle());
  }
};

// Creates a schedule of some units. Collective over their group: units and options are equal on all
// ranks.
[[nodiscard]] inline Schedule schedule(const UnitList& units, const ScheduleOptions& options = {}) {
  const meron_schedule_options raw = options.raw();
  return Schedule(adopt, detail::receive(meron_schedule_create, units.data(), units.size(), &raw));
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

template <>
struct std::hash<meron::Schedule> : meron::detail::HandleHash {};

#endif  // MERON_CPP_SCHEDULE_HPP
