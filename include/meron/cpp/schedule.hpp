// SPDX-License-Identifier: Apache-2.0
// meron/cpp/schedule.hpp: the order in which a trainer uses its units, recorded and replayed.
#ifndef MERON_CPP_SCHEDULE_HPP
#define MERON_CPP_SCHEDULE_HPP

#include <chrono>
#include <limits>

#include "meron/cpp/methods.hpp"
#include "meron/cpp/param.hpp"
#include "meron/cpp/values.hpp"
#include "meron/schedule.h"

namespace meron {
inline namespace v1 {

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
  void enter(size_t index) const {
    detail::call(meron_schedule_enter, handle(), index, int64_t{MERON_TIMEOUT_DEFAULT});
  }
  // Returns false after the timeout: then the unit is not entered, and the next enter of the unit
  // continues the same use.
  [[nodiscard]] bool enter_for(size_t index, std::chrono::nanoseconds duration) const {
    return detail::call(meron_schedule_enter, handle(), index, detail::timeout(duration)) ==
           MERON_OK;
  }
  void leave(size_t index) const { detail::call(meron_schedule_leave, handle(), index); }
  // The full tensor, until its unit is left.
  View view(const Param& param) const& {
    return View(detail::receive(meron_schedule_view, handle(), param.handle()));
  }
  View view(const Param& param) const&& = delete;  // the view would outlive the schedule

  // Drops all uses and the pass. Call it after an exception in the trainer.
  void reset() const { detail::call(meron_schedule_reset, handle()); }

  meron_schedule_info info() const {
    return detail::receive_info<meron_schedule_info>(meron_schedule_get_info, handle());
  }
};

// Creates a schedule of some units. Collective over their group: units and options are equal on all
// ranks.
[[nodiscard]] inline Schedule schedule(const UnitList& units, const ScheduleOptions& options = {}) {
  const meron_schedule_options raw = options.raw();
  return Schedule(detail::receive(meron_schedule_create, units.data(), units.size(), &raw));
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_SCHEDULE_HPP
