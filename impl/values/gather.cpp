// SPDX-License-Identifier: Apache-2.0
#include "values/gather.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/held.h"
#include "rank/staging.h"

namespace meron {

Channel& GatherOperation::channel_for(const std::vector<std::shared_ptr<Unit>>& units) {
  const Axes& axes = units.front()->axes();
  // Devices of both axes take turns in the order of one channel's calls.
  if (axes.devices != nullptr) return *axes.group;
  const bool between = std::any_of(units.begin(), units.end(),
                                   [](const auto& unit) { return unit->between_replicas(); });
  return between ? *axes.group : *axes.shard;
}

GatherOperation::GatherOperation(Prepared /*by*/, std::vector<std::shared_ptr<Unit>> units,
                                 GatherMode mode, std::vector<GatherTarget> targets,
                                 Channel& channel, ViewTier tier)
    : Operation(channel, Deadline::never()),
      units_(std::move(units)),
      mode_(mode),
      targets_(std::move(targets)),
      view_on_device_(mode == GatherMode::view && tier == ViewTier::device &&
                      units_.front()->rank().device != nullptr),
      targets_on_device_(std::any_of(targets_.begin(), targets_.end(),
                                     [](const auto& target) { return target.on_device; })),
      only_on_device_(
          view_on_device_ ||
          (targets_on_device_ && std::all_of(targets_.begin(), targets_.end(),
                                             [](const auto& each) { return each.on_device; }))) {
  items_.reserve(units_.size());
  if (only_on_device_ && std::all_of(units_.begin(), units_.end(),
                                     [](const auto& unit) { return unit->gathers_on_device(); })) {
    by_devices_.emplace(units_);
  }
}

namespace {

// Each buffer belongs to `targets` as soon as it exists.
Status allocate_copies(const std::vector<std::shared_ptr<Unit>>& units,
                       std::vector<GatherTarget>& targets) {
  Arena& arena = units.front()->rank().arena();
  for (const auto& unit : units) {
    for (const auto& param : unit->params()) {
      GatherTarget& target = targets.emplace_back(GatherTarget::of_param(*param));
      MERON_ASSIGN(target.buffer, arena.allocate(target.bytes(), MemoryKind::staging,
                                                 fmt::format("a copy of '{}'", param->desc.name)));
      target.data = target.buffer.data;
    }
  }
  return Ok{};
}

}  // namespace

Result<std::shared_ptr<GatherOperation>> GatherOperation::prepare(
    std::vector<std::shared_ptr<Unit>> units, GatherMode mode, std::vector<GatherTarget> targets,
    Channel& channel, ViewTier tier) {
  auto gather = std::make_shared<GatherOperation>(Prepared{}, std::move(units), mode,
                                                  std::move(targets), channel, tier);
  if (mode == GatherMode::copy) {
    const Recess recess;  // while the host gives memory, or takes it back: the call has the turn
    if (Status allocated = allocate_copies(gather->units_, gather->targets_); !allocated.ok()) {
      gather.reset();
      return std::move(allocated).error();
    }
  }
  if (gather->by_devices_) MERON_TRY(gather->by_devices_->reserve());
  return gather;
}

Status GatherOperation::begin(uint64_t sequence, Deadline deadline) {
  set_sequence(sequence);
  begin_use(deadline);
  for (const auto& unit : units_) {
    Item item{.unit = unit.get(),
              .version = unit->version(),
              .number = ++unit->gathers,
              .between = !by_devices_ && !(unit->axes().devices && unit->refreshes_rows()) &&
                         unit->between_replicas()};
    if (item.between) unit->arrivals.exchanged = item.version;
    const bool in_place = by_devices_ || (only_on_device_ && unit->whole_on_device());
    if (unit->state() == ValueState::available) {
      if (in_place || !unit->stages_values()) item.stage = Stage::whole;
    } else {
      MERON_TRY(unit->enter(ValueState::gathering));
      if (in_place) {
        MERON_TRY(unit->enter(ValueState::available));
        item.stage = Stage::whole;
      }
    }
    unit->lease();
    items_.push_back(std::move(item));
  }
  if (units_.front()->axes().devices == nullptr) return Ok{};
  Status launched = begin_on_devices();
  if (launched.ok()) return launched;
  return fail_devices(channel_, std::move(launched).error().during(describe()), sequence);
}

GatherOperation::~GatherOperation() {
  for (const GatherTarget& target : targets_) {
    if (target.buffer) units_.front()->rank().arena().release(target.buffer);
  }
}

Result<bool> GatherOperation::advance() {
  Result<bool> moved = move();
  if (given_up_ && !released_) {  // in the middle of this
    if (Status released = release_now(given_up_stream_); !released.ok()) {
      moved = std::move(released).error();
    }
  }
  return moved;
}

Result<bool> GatherOperation::move() {
  bool all = true;
  for (Item& item : items_) {
    if (item.stage == Stage::whole) continue;
    // A released gather still stages the values that other ranks read.
    if (released_ && !item.unit->stages_values()) continue;
    if (item.unit->busy_with_values()) {
      all = false;
      continue;
    }
    MERON_ASSIGN(const bool whole, advance(item));
    if (!whole) {
      all = false;
      continue;
    }
    item.stage = Stage::whole;
    // Drops values that were staged after the release.
    if (released_) item.unit->drop_staged();
    if (!released_ && item.unit->state() == ValueState::gathering) {
      MERON_TRY(item.unit->enter(ValueState::available));
    }
  }
  if (!all) return false;
  if (released_) return true;
  // From here on, a failure concerns only this rank: peers have all they need from it.
  Result<bool> done = true;  // a view on the host needs no copy
  if (view_on_device_) {
    done = lease_device();
  } else if (!targets_.empty()) {
    done = copy_targets();
  }
  if (!done.ok()) {
    MERON_TRY(release_now({}));
    return std::move(done).error();
  }
  if (!*done) return false;
  // The copy is the caller's; the values may change from now on.
  if (mode_ != GatherMode::view) MERON_TRY(release_now({}));
  return true;
}

Result<bool> GatherOperation::advance(Item& item) {
  Unit& unit = *item.unit;
  if (!is_sharded(unit.rank().plan.param)) return advance_replicated(item);
  if (unit.stages_values()) return advance_staged(item);
  if (!unit.reached(unit.local_peers(), item.version, &UnitSlot::published)) return false;
  if (mode_ != GatherMode::view) return true;
  for (const Flat& flat : unit.flats()) {
    add(unit.rank().counters.gather_mapped,
        (flat.desc.elements - flat.rest.size()) * size_of(flat.desc.dtype));
  }
  return true;
}

Status GatherOperation::release(std::optional<void*> user) {
  if (!running() || released_) return release_now(user);
  given_up_ = true;
  given_up_stream_ = user;
  return Ok{};
}

Status GatherOperation::release_now(std::optional<void*> user) {
  if (released_) return Ok{};
  released_ = true;
  Status followed = Ok{};
  if (upload_ && !upload_->done()) {
    upload_->drop();
    followed = note_copies();
  }
  const std::span<void* const> users(user ? &*user : nullptr, user ? 1 : 0);
  for (; device_leases_ > 0; --device_leases_) {
    Status each = units_[device_leases_ - 1]->on_device()->unlease(users);
    if (followed.ok()) followed = std::move(each);
  }
  for (const auto& unit : units_) MERON_TRY(unit->unlease());
  return followed;
}

FullTensor GatherOperation::tensor(const Param& param) const {
  if (mode_ != GatherMode::view) {
    for (const GatherTarget& target : targets_) {
      if (!target.has(param)) continue;
      const uint64_t before = param.place.offset - target.elements.begin;
      return {target.data + before * size_of(param.desc.dtype), target.on_device};
    }
    return {};
  }
  for (const auto& unit : units_) {
    if (param.unit != unit.get()) continue;
    const Flat& flat = unit->flat_of(param);
    const std::byte* const values =
        view_on_device_ ? unit->on_device()->data(param.place.flat) : flat.values;
    return {values + param.place.offset * size_of(flat.desc.dtype), view_on_device_};
  }
  return {};
}

std::vector<int> GatherOperation::missing() const {
  std::vector<int> late;
  for (const Item& item : items_) {
    const Unit& unit = *item.unit;
    const Axes& axes = unit.axes();
    if (item.stage == Stage::whole) continue;
    auto members = unit.behind(unit.readers(), item.version, &UnitSlot::published);
    if (members.empty() && item.stage == Stage::local_peers) {
      members = unit.behind(unit.local_peers(), item.number, &UnitSlot::arrived);
    }
    if (item.stage == Stage::parts && item.parts) {
      const Channel& axis = is_sharded(unit.rank().plan.param)                ? *axes.replica
                            : over_all(unit.rank().plan.optimizer, axes.mesh) ? *axes.group
                                                                              : *axes.shard;
      for (const int m : awaited(axis, item.parts->batch().get())) {
        members.push_back(&axis == axes.replica ? axes.of_replica(m)
                          : &axis == axes.shard ? axes.of_shard(m)
                                                : m);
      }
    }
    if (item.stage == Stage::rows && item.rows) {
      for (const int m : awaited(*axes.shard, item.rows->batch().get())) {
        members.push_back(axes.of_shard(m));
      }
    }
    const auto found = unit.places(channel_, members);
    late.insert(late.end(), found.begin(), found.end());
  }
  std::sort(late.begin(), late.end());
  late.erase(std::unique(late.begin(), late.end()), late.end());
  return late;
}

std::string GatherOperation::waits_for_drive() const {
  for (const Item& item : items_) {
    if (item.stage == Stage::whole || item.stage == Stage::local_peers) continue;
    if (std::string text = item.unit->drive_text(); !text.empty()) return text;
  }
  return {};
}

std::string GatherOperation::describe() const {
  if (units_.size() == 1) return fmt::format("gather of unit '{}'", units_.front()->name());
  return fmt::format("gather of {} units from '{}' on", units_.size(), units_.front()->name());
}

}  // namespace meron
