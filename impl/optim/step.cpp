// SPDX-License-Identifier: Apache-2.0
#include "optim/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gradient/gradient.h"
#include "kernels/cpu/reduce.h"
#include "optim/nonfinite.h"

namespace meron {

Status StepOperation::check(const Optimizer& optimizer) {
  MERON_TRY(optimizer.check_idle());
  for (const auto& unit : optimizer.units_) {
    MERON_TRY(unit->check_updatable());
    MERON_TRY(check_reduced(*unit));
    MERON_TRY(unit->gradient().check_not_lent("step the optimizer"));
  }
  return Ok{};
}

StepOperation::StepOperation(std::shared_ptr<Optimizer> optimizer, Deadline deadline)
    : Operation(optimizer->units_.front()->channel(), deadline),
      optimizer_(std::move(optimizer)),
      given_{optimizer_->groups_, optimizer_->options_.max_norm},
      norm_(channel_) {}

std::shared_ptr<StepOperation> StepOperation::prepare(std::shared_ptr<Optimizer> optimizer,
                                                      Deadline deadline) {
  return std::shared_ptr<StepOperation>(new StepOperation(std::move(optimizer), deadline));
}

void StepOperation::begin(uint64_t sequence) {
  set_sequence(sequence);
  set_stepping(true);
}

// A failed step breaks its group; its units then keep `stepping`.
void StepOperation::set_stepping(bool stepping) {
  optimizer_->stepping_ = stepping;
  for (const auto& unit : optimizer_->units_) unit->stepping = stepping;
}

// Releases the optimizer: a future that outlives the step keeps no states.
void StepOperation::end() {
  set_stepping(false);
  pass_ = nullptr;
  optimizer_.reset();
}

// The states that were written belong to another step than the rest, so the group fails.
Error StepOperation::fail(Error error) {
  return channel_.fail(std::move(error).during("optimizer_step"));
}

Result<bool> StepOperation::advance() {
  if (!begin_pass()) return false;
  if (Status moved = move_pass(); !moved.ok()) return moved.error();
  if (!norm_.published()) {
    if (Status shared = share_norm(); !shared.ok()) return fail(std::move(shared).error());
  }
  if (agreement_ != Agreement::reached) {
    MERON_ASSIGN(const bool known, agree_on_norm());
    if (!known) return false;
  }
  const size_t units = optimizer_->units_.size();
  if (Status opened = open_units(); !opened.ok()) return fail(std::move(opened).error());
  bool published = false;
  while (updated_ < units) {
    MERON_ASSIGN(const bool updated, update_some());
    while (updated_ < units && is_updated(updated_)) {
      Status done = optimizer_->units_[updated_]->publish(false);
      if (!done.ok()) return fail(std::move(done).error());
      MERON_TRY(optimizer_->units_[updated_]->gradient().enter(GradientState::empty));
      ++updated_;
      published = true;
    }
    if (Status opened = open_units(); !opened.ok()) return fail(std::move(opened).error());
    if (!updated) break;
  }
  if (published) channel_.transport().ring();
  if (updated_ < units) return false;
  end();
  return true;
}

// A save reads states on nvme through the memory of the pass. False: it has not copied them yet.
bool StepOperation::begin_pass() {
  if (pass_ || !optimizer_->file_) return true;
  if (first_held() != nullptr) return false;
  pass_ = &optimizer_->file_->pass();
  pass_->begin_round();
  return true;
}

const Unit* StepOperation::first_held() const {
  for (const auto& unit : optimizer_->units_) {
    if (unit->held_for_save()) return unit.get();
  }
  return nullptr;
}

Status StepOperation::move_pass() {
  if (!pass_) return Ok{};
  Status moved = pass_->advance();
  return moved.ok() ? Status(Ok{}) : Status(fail(std::move(moved).error()));
}

// Stages values on nvme for the update, some units ahead of it.
Status StepOperation::open_units() {
  const auto& units = optimizer_->units_;
  for (; opened_ < units.size(); ++opened_) {
    Unit& unit = *units[opened_];
    if (!unit.all_released()) break;
    if (!unit.stores() || unit.updated_on_device()) continue;
    if (!unit.may_change(opened_ - updated_)) break;
    MERON_TRY(unit.open_change(true));
  }
  return Ok{};
}

// Returns true once the values of the unit may be written.
Result<bool> StepOperation::open(size_t unit) {
  if (unit >= opened_) return false;
  Unit& values = *optimizer_->units_[unit];
  if (!values.stores() || values.updated_on_device()) return true;
  Result<bool> changeable = values.changeable();
  if (!changeable.ok()) return fail(std::move(changeable).error());
  return changeable;
}

bool StepOperation::is_updated(size_t unit) const {
  return opened_ > unit && host_unit_ > unit &&
         (!pass_ || pass_->handed_out() >= optimizer_->sub_groups_end_[unit]);
}

// Sub-groups that the drive has read are updated first, so that it stays busy; states on the host,
// of any unit, while it has read none.
Result<bool> StepOperation::update_some() {
  MERON_ASSIGN(std::byte* const records, records_read());
  if (records != nullptr) {
    const StateFile::SubGroup& group = pass_->sub_group();
    FlatStates& states = optimizer_->states_of(group);
    Status updated = states.update(numbers_, handed_over(states), group, records);
    if (!updated.ok()) return fail(std::move(updated).error());
    pass_->pop();
  } else {
    MERON_ASSIGN(const bool updated, update_memory());
    if (!updated) return false;
  }
  if (Status moved = move_pass(); !moved.ok()) return moved.error();
  return true;
}

Result<std::byte*> StepOperation::records_read() {
  std::byte* const nothing = nullptr;
  if (!pass_ || pass_->handed_out_all()) return nothing;
  std::byte* const records = pass_->front();
  if (records == nullptr) return nothing;
  const auto& ends = optimizer_->sub_groups_end_;
  while (pass_->handed_out() >= ends[drive_unit_]) ++drive_unit_;
  MERON_ASSIGN(const bool opened, open(drive_unit_));
  return opened ? records : nothing;
}

Result<bool> StepOperation::update_memory() {
  for (; host_unit_ < optimizer_->units_.size(); ++host_unit_, host_flat_ = 0) {
    MERON_ASSIGN(const bool opened, open(host_unit_));
    if (!opened) return false;
    const auto& flats = optimizer_->states_[host_unit_];
    for (; host_flat_ < flats.size(); ++host_flat_, host_elements_ = 0) {
      if (!flats[host_flat_]) continue;
      FlatStates& states = *flats[host_flat_];
      if (states.on_device()) {
        if (host_elements_ > 0) continue;
        if (Status enqueued = update_on_device(states); !enqueued.ok()) {
          return fail(std::move(enqueued).error());
        }
        host_elements_ = states.split().device.size();
        return true;
      }
      const Range& host = states.split().host;
      if (host_elements_ >= host.size()) continue;
      // All at once without a drive to advance. With one in pieces of several sub-groups: shorter
      // ones cost more than the drive gains, as threads have to wake for each.
      constexpr uint64_t kSubGroups = 16;
      const uint64_t piece =
          pass_ ? kSubGroups * optimizer_->rank_.plan.optimizer.sub_group : host.size();
      const uint64_t begin = host.begin + host_elements_;
      const Range range{begin, std::min(host.end, begin + piece)};
      states.update_host(numbers_, handed_over(states), range);
      host_elements_ += range.size();
      return true;
    }
  }
  return false;
}

Status StepOperation::update_on_device(FlatStates& states) {
  Unit& unit = states.unit();
  // The update on the stream waits for copies that still read the values.
  MERON_TRY(unit.on_device()->join(unit.rank().device->work()));
  MERON_TRY(unit.gradient().memory().take_back());
  return states.update_on_device(numbers_);
}

bool StepOperation::handed_over(const FlatStates& states) {
  return states.unit().read_by_peers() && !states.flat().coded();
}

std::vector<int> StepOperation::missing() const {
  if (!optimizer_) return {};
  if (agreement_ != Agreement::reached) return norm_.missing();
  const auto& units = optimizer_->units_;
  if (updated_ == units.size()) return {};
  return units[updated_]->unreleased();
}

std::string StepOperation::waits_for_drive() const {
  if (!optimizer_) return {};
  if (const Unit* const held = first_held();
      held != nullptr && (agreement_ == Agreement::reached || !norm_.published())) {
    return held->drive_text();
  }
  if (agreement_ != Agreement::reached || !missing().empty()) return {};
  const auto& units = optimizer_->units_;
  for (size_t u = updated_; u < opened_; ++u) {
    if (std::string text = units[u]->drive_text(); !text.empty()) return text;
  }
  return pass_ ? pass_->describe() : std::string();
}

}  // namespace meron
