// SPDX-License-Identifier: Apache-2.0
// Records the order in which units are used, and replays it: begins gathers ahead, keeps what is
// used again soon.
//
// A unit is used from the first enter to the leave that matches it; a pass is a sequence of such
// uses. A pass follows the recorded order of its kind: its position is behind the use that was made
// last. Gathers are begun ahead in the window that begins at the position and reaches over
// `prefetch_elements` of uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/order_index.h"

namespace meron {

struct ScheduleOptions {
  uint64_t prefetch_elements = 50'000'000;
  uint64_t max_live_elements = 1'000'000'000;
  uint64_t max_reuse_elements = 1'000'000'000;
  uint64_t persist_elements = 100'000;
  uint64_t persist_total_elements = std::numeric_limits<uint64_t>::max();
};

// The gathers that a schedule drives. Units are numbers, in the order of `elements`.
class Gatherer {
 public:
  virtual ~Gatherer() = default;
  // Begins the gather of a unit, which does not have one. Begins nothing when it fails.
  virtual Status begin(size_t unit) = 0;
  // True if the unit is full; the gather's error if it failed.
  virtual Result<bool> full(size_t unit) = 0;
  // Releases the gather, full or not.
  virtual Status release(size_t unit) = 0;
  virtual std::string name(size_t unit) const = 0;
};

struct ScheduleCounts {
  uint64_t entered = 0;  // units that are entered now
  uint64_t passes = 0;
  uint64_t uses = 0;   // enters, nested ones too
  uint64_t ready = 0;  // of units that were full already
  uint64_t ahead = 0;  // of units whose gather had been begun ahead
  uint64_t deviations = 0;
  uint64_t live_elements = 0;
  uint64_t peak_live_elements = 0;
  uint64_t wait_ns = 0;
};

class Schedule {
 public:
  static constexpr size_t kKinds = 16;

  // `elements`: of each unit. The gatherer outlives the schedule.
  Schedule(Gatherer& gatherer, std::vector<uint64_t> elements, const ScheduleOptions& options);

  // A new pass. MERON_E_STATE while units are entered.
  Status start_pass(size_t kind);

  // Begins a use. True: the unit is full. False: its gather is under way; the caller waits for it
  // and then calls waited(). After an error the unit is not entered, and the next enter() of it
  // continues this use.
  Result<bool> enter(size_t unit);
  // Ends the wait after enter() returned false. `full` is false if the wait was cancelled; the unit
  // is then not entered, as after an error of enter().
  void waited(size_t unit, bool full, uint64_t nanoseconds);
  // Ends a use. MERON_E_STATE if the unit is not entered, also while it is still waited for.
  Status leave(size_t unit);

  // Releases everything. MERON_E_STATE while units are entered.
  Status drop();
  // Forgets uses and pass, and releases everything.
  Status reset();

  bool entered(size_t unit) const { return units_[unit].uses > 0; }
  const ScheduleCounts& counts() const { return counts_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  struct Unit {
    uint64_t uses = 0;        // enters without their leave
    bool held = false;        // a gather is under way or full
    bool full = false;        // seen to be
    bool ahead = false;       // held for a use that has not come yet
    bool persistent = false;  // stays held after its uses
  };

  Status hold(size_t unit);
  Status give_back(size_t unit);
  bool arrived(size_t unit);
  Result<bool> look_full(size_t unit);
  // The use of `unit` was not entered after all; its gather waits for the next try.
  void suspend(size_t unit);
  // Records a use, and moves the position behind it.
  Status follow(size_t unit);
  Status skip(size_t from, size_t to);
  Status look_ahead();
  // True if an unused unit stays full for its next recorded use.
  bool kept(size_t unit) const;
  bool fits(uint64_t elements) const;
  Status check_left(const char* before) const;
  const OrderIndex& order() const { return orders_[kind_]; }

  Gatherer& gatherer_;
  const ScheduleOptions options_;
  const std::vector<uint64_t> elements_;
  std::vector<Unit> units_;
  ScheduleCounts counts_;

  // One per kind, and an empty one for uses outside of a pass.
  std::array<OrderIndex, kKinds + 1> orders_;
  size_t kind_ = kKinds;            // of the pass; kKinds outside of one
  std::vector<uint32_t> recorded_;  // the uses of the pass so far
  size_t position_ = 0;             // in order(): the use that is expected next
  size_t window_ = 0;               // in order(): up to here units are held or were passed by
  // Where the position was before it skipped ahead, until the next use shows that to be right: a
  // unit that was used out of turn must not take the rest of the order with it.
  size_t before_skip_ = kNone;
  size_t suspended_ = kNone;  // the unit whose use continues when it is entered next
  // True if that use has not begun the gathers after it yet. It begins them once, so ranks that
  // needed more tries, with leaves in between, begin no more than the others.
  bool looks_ahead_ = false;
};

}  // namespace meron
