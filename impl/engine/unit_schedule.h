// SPDX-License-Identifier: Apache-2.0
// A schedule of units: its gathers are the context's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/schedule.h"
#include "unit/unit.h"
#include "values/gather.h"

namespace meron {

class Context;

// The tier of views, and the trainer's stream for views on the device.
struct ViewMemory {
  ViewTier tier = ViewTier::host;
  void* stream = nullptr;
};

// Everything but enter() is called under the context's lock. The context outlives it.
class UnitSchedule final : private Gatherer {
 public:
  UnitSchedule(Context& context, std::vector<std::shared_ptr<Unit>> units,
               const ScheduleOptions& options, ViewMemory memory);
  ~UnitSchedule();
  UnitSchedule(const UnitSchedule&) = delete;
  UnitSchedule& operator=(const UnitSchedule&) = delete;

  Schedule& schedule() { return schedule_; }
  size_t size() const { return units_.size(); }
  // Schedule::enter, and the wait for the unit: takes the lock itself, and sleeps without it.
  // False: `timeout_ns` has passed and the unit is not entered.
  Result<bool> enter(size_t unit, int64_t timeout_ns);
  // The whole tensor of a param. MERON_E_ARGUMENT: its unit is not here; MERON_E_STATE: it is not
  // entered.
  Result<FullTensor> tensor(const Param& param) const;

 private:
  // The unit is full for the host; the stream waits for what is full on the device.
  Status join(GatherOperation& gather) const;
  Status begin(size_t unit) override;
  Result<bool> full(size_t unit) override;
  Status release(size_t unit) override;
  std::string name(size_t unit) const override { return units_[unit]->name(); }

  Context& context_;
  const ViewMemory memory_;
  const std::vector<std::shared_ptr<Unit>> units_;
  std::unordered_map<const Unit*, size_t> index_;
  std::vector<std::shared_ptr<GatherOperation>> gathers_;  // of the units that are held
  Schedule schedule_;
};

}  // namespace meron
