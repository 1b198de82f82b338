// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meron {

Schedule::Schedule(Gatherer& gatherer, std::vector<uint64_t> elements,
                   const ScheduleOptions& options)
    : gatherer_(gatherer),
      options_(options),
      elements_(std::move(elements)),
      units_(elements_.size()) {
  uint64_t left = options_.persist_total_elements;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (elements_[unit] > std::min(options_.persist_elements, left)) continue;
    units_[unit].persistent = true;
    left -= elements_[unit];
  }
}

Status Schedule::start_pass(size_t kind) {
  MERON_TRY(check_left("before a pass starts"));
  if (!recorded_.empty() && recorded_ != order().uses()) {
    orders_[kind_] = OrderIndex(std::exchange(recorded_, {}), elements_);
  }
  recorded_.clear();
  kind_ = kind;
  position_ = window_ = 0;
  before_skip_ = suspended_ = kNone;
  ++counts_.passes;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const Unit& state = units_[unit];
    const bool stays = !state.ahead && (state.persistent || kept(unit));
    if (state.held && !stays) MERON_TRY(give_back(unit));
  }
  return Ok{};
}

Result<bool> Schedule::enter(size_t unit) {
  Unit& state = units_[unit];
  if (state.uses > 0) {
    ++state.uses;
    ++counts_.uses;
    if (state.full) ++counts_.ready;
    return state.full;
  }
  const bool ready = state.held && (state.full || arrived(unit));
  const bool resumed = suspended_ == unit;
  if (!resumed) looks_ahead_ = true;
  if (!state.held) MERON_TRY(hold(unit));
  if (!resumed) {
    ++counts_.uses;
    counts_.ready += ready ? 1 : 0;
    counts_.ahead += state.ahead ? 1 : 0;
  }
  suspended_ = kNone;
  state.ahead = false;
  state.uses = 1;
  ++counts_.entered;
  const auto go_on = [&]() -> Result<bool> {
    if (!resumed) MERON_TRY(follow(unit));
    if (looks_ahead_) MERON_TRY(look_ahead());
    looks_ahead_ = false;
    return look_full(unit);
  };
  auto full = go_on();
  if (!full.ok()) suspend(unit);
  return full;
}

void Schedule::waited(size_t unit, bool full, uint64_t nanoseconds) {
  counts_.wait_ns += nanoseconds;
  Unit& state = units_[unit];
  if (full) {
    state.full = state.held;
  } else if (state.uses > 1) {
    --state.uses;
  } else if (state.uses == 1) {
    suspend(unit);
  }
}

Status Schedule::leave(size_t unit) {
  Unit& state = units_[unit];
  if (state.uses == 0 || !state.full) {
    return Error(MERON_E_STATE, fmt::format("unit '{}' is not entered", gatherer_.name(unit)),
                 "leave a unit once for each time that it was entered")
        .on(gatherer_.name(unit));
  }
  if (--state.uses > 0) return Ok{};
  --counts_.entered;
  if (state.persistent || kept(unit)) return Ok{};
  return give_back(unit);
}

Status Schedule::drop() {
  MERON_TRY(check_left("before their values change"));
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].held) MERON_TRY(give_back(unit));
  }
  suspended_ = kNone;
  return Ok{};
}

Status Schedule::reset() {
  kind_ = kKinds;
  recorded_.clear();
  position_ = window_ = 0;
  before_skip_ = kNone;
  counts_.entered = 0;
  for (Unit& state : units_) state.uses = 0;
  return drop();
}

Status Schedule::hold(size_t unit) {
  MERON_TRY(gatherer_.begin(unit));
  units_[unit].held = true;
  counts_.live_elements += elements_[unit];
  counts_.peak_live_elements = std::max(counts_.peak_live_elements, counts_.live_elements);
  return Ok{};
}

Status Schedule::give_back(size_t unit) {
  Unit& state = units_[unit];
  state.held = state.full = state.ahead = false;
  counts_.live_elements -= elements_[unit];
  // The window has passed the unit's next use, so it moves back.
  if (window_ > position_) window_ = std::min(window_, order().next(unit, position_));
  return gatherer_.release(unit);
}

bool Schedule::arrived(size_t unit) {
  const auto full = gatherer_.full(unit);
  return full.ok() && *full;
}

Result<bool> Schedule::look_full(size_t unit) {
  Unit& state = units_[unit];
  if (!state.full) {
    MERON_ASSIGN(state.full, gatherer_.full(unit));
  }
  return state.full;
}

void Schedule::suspend(size_t unit) {
  units_[unit].uses = 0;
  units_[unit].ahead = true;
  --counts_.entered;
  suspended_ = unit;
}

Status Schedule::follow(size_t unit) {
  if (kind_ == kKinds) return Ok{};
  recorded_.push_back(static_cast<uint32_t>(unit));
  if (order().size() == 0) return Ok{};
  if (position_ < order().size() && order()[position_] == unit) {
    ++position_;
    before_skip_ = kNone;
    return Ok{};
  }
  ++counts_.deviations;
  const size_t next = order().next(unit, std::min(before_skip_, position_));
  if (next == OrderIndex::kNever) return Ok{};
  const size_t left = position_;
  position_ = window_ = next + 1;
  if (next < left) {  // the skip was none
    before_skip_ = kNone;
    return Ok{};
  }
  before_skip_ = std::min(before_skip_, left);
  return skip(left, next);
}

// Releases units that are held only for uses that the position has skipped.
Status Schedule::skip(size_t from, size_t to) {
  for (size_t place = from; place < to; ++place) {
    const size_t unit = order()[place];
    const Unit& state = units_[unit];
    const bool idle = state.held && state.uses == 0;
    if (!idle || kept(unit) || (state.persistent && !state.ahead)) continue;
    MERON_TRY(give_back(unit));
  }
  return Ok{};
}

Status Schedule::look_ahead() {
  const OrderIndex& uses = order();
  window_ = std::max(window_, position_);
  while (window_ < uses.size() && uses.distance(position_, window_) < options_.prefetch_elements) {
    const size_t unit = uses[window_];
    if (!units_[unit].held) {
      if (!fits(elements_[unit])) break;
      MERON_TRY(hold(unit));
      units_[unit].ahead = true;
    }
    ++window_;
  }
  return Ok{};
}

bool Schedule::kept(size_t unit) const {
  const size_t next = order().next(unit, position_);
  if (next == OrderIndex::kNever || counts_.live_elements > options_.max_live_elements)
    return false;
  // A release within the window would be followed by a new gather at once.
  const uint64_t distance = order().distance(position_, next);
  return distance <= options_.max_reuse_elements || distance < options_.prefetch_elements;
}

bool Schedule::fits(uint64_t elements) const {
  return counts_.live_elements <= options_.max_live_elements &&
         elements <= options_.max_live_elements - counts_.live_elements;
}

Status Schedule::check_left(const char* before) const {
  if (counts_.entered == 0) return Ok{};
  constexpr size_t kNamed = 4;
  std::string names;
  size_t named = 0;
  for (size_t unit = 0; unit < units_.size() && named < kNamed; ++unit) {
    if (units_[unit].uses == 0) continue;
    names += fmt::format("{}'{}'", named++ == 0 ? "" : ", ", gatherer_.name(unit));
  }
  if (counts_.entered > named) names += fmt::format(" and {} more", counts_.entered - named);
  return Error(MERON_E_STATE,
               fmt::format("{} {} still entered", names, counts_.entered == 1 ? "is" : "are"),
               fmt::format("leave units {}, or reset the schedule after an exception", before));
}

}  // namespace meron
