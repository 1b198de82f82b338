// SPDX-License-Identifier: Apache-2.0
#include "unit/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/no_memory.h"
#include "device/device_group.h"
#include "os/host.h"
#include "plan/predict.h"
#include "plan/value_layout.h"
#include "shard/shard_on_nvme.h"

namespace meron {

Error forbidden_transition(const std::string& unit, std::string_view from, std::string_view to) {
  return Error(MERON_E_INTERNAL, fmt::format("unit '{}' cannot go from {} to {}", unit, from, to),
               "please report this defect with the flight record");
}

Unit::Unit(Rank& rank, const Axes& axes, std::string name,
           std::vector<std::shared_ptr<Param>> params)
    : UnitShape(rank, axes, std::move(name), std::move(params)), encoding{rank.plan.param.codec} {}

Result<std::shared_ptr<Unit>> Unit::create(Rank& rank, const Axes& axes, std::string name,
                                           std::vector<std::shared_ptr<Param>> params) {
  std::vector<TensorDesc> tensors;
  tensors.reserve(params.size());
  for (const auto& param : params) tensors.push_back(param->desc);
  MERON_ASSIGN(const UnitLayout layout, layout_unit(tensors));

  std::shared_ptr<Unit> unit(new Unit(rank, axes, std::move(name), std::move(params)));
  unit->lay_out(layout);
  MERON_ASSIGN(unit->memory_.all.emplace_back(), unit->reserve_slots());
  for (const auto reserve : {&Unit::reserve_values, &Unit::prepare_device}) {
    Status reserved = catch_no_memory([&] { return (*unit.*reserve)(); });
    if (reserved.ok()) continue;
    unit->undo();
    return std::move(reserved).error();
  }
  for (size_t i = 0; i < unit->params_.size(); ++i) {
    unit->params_[i]->unit = unit.get();
    unit->params_[i]->place = layout.tensors[i];
  }
  return unit;
}

Unit::~Unit() = default;

void Unit::undo() {
  // The arena may reuse these addresses with other pages.
  for (const Flat& flat : flats_) {
    if (flat.coded() && flat.on_device != nullptr) rank_.device->unpin(flat.exact);
  }
  {
    const Recess recess;  // no other thread has the unit
    for (const Buffer& buffer : memory_.buffers) rank_.arena().release(buffer);
    for (const auto& [offset, bytes] : memory_.held) {
      (void)rank_.transport.window().discard(offset, bytes).ok();
      rank_.arena().discharge(bytes, MemoryKind::param);
    }
  }
  memory_.buffers.clear();
  memory_.held.clear();
  for (const auto& param : params_) param->unit = nullptr;
  for (Flat& flat : flats_) {
    flat.on_device = nullptr;
    if (flat.shard) std::exchange(flat.shard, nullptr)->give_back();
  }
}

Result<std::byte*> Unit::allocate(uint64_t bytes, MemoryKind kind, const char* what,
                                  uint64_t* offset) {
  const auto take = [&] {
    const Recess recess;  // while the host allocates: no other thread has the unit yet
    return rank_.arena().allocate(bytes, kind, fmt::format("{} of unit '{}'", what, name_));
  };
  MERON_ASSIGN(const Buffer buffer, take());
  memory_.buffers.push_back(buffer);
  if (offset != nullptr) *offset = buffer.offset;
  return buffer.data;
}

Status Unit::reserve_values() {
  for (size_t f = 0; f < flats_.size(); ++f) {
    Flat& flat = flats_[f];
    if (is_sharded(rank_.plan.param)) {
      MERON_TRY(reserve_window(flat));
      MERON_TRY(reserve_encoded(f));
      if (stores() && stored_away(rank_.plan, flat.desc)) MERON_TRY(store_away(flat));
      continue;
    }
    uint64_t offset = 0;
    MERON_ASSIGN(flat.writable,
                 allocate(flat.value_bytes(), MemoryKind::param, "the values", &offset));
    flat.values = rank_.arena().readable(flat.writable);
    own_slot().offsets.values[f].store(offset, std::memory_order_relaxed);
  }
  return Ok{};
}

Status Unit::reserve_window(Flat& flat) {
  Window& window = rank_.transport.window();
  // Replicas that hold rows alike have a place each; ranks that share the flat make their own pages
  // real.
  const bool alike = !over_all(rank_.plan.param, axes_.mesh);
  const uint64_t stride = round_up(flat.value_bytes(), kPage);
  const uint64_t all = alike ? stride * axes_.mesh.replicas : stride;
  MERON_ASSIGN(const uint64_t first,
               rank_.transport.window_allocate(all, fmt::format("unit '{}'", name_), axes_.number));
  memory_.all.emplace_back(first, all);
  const uint64_t offset =
      first + (alike ? stride * static_cast<uint64_t>(axes_.own_replica()) : uint64_t{0});
  flat.window_offset = offset;
  flat.values = window.readable(offset);
  flat.writable = window.writable(offset);
  const bool elsewhere = stores() && stored_away(rank_.plan, flat.desc) && !mirrored(rank_.plan);
  if (flat.packed || elsewhere) return Ok{};
  const uint64_t size = size_of(flat.desc.dtype);
  const uint64_t bytes = flat.rest.size() * size;
  MERON_TRY(rank_.arena().charge(bytes, MemoryKind::param,
                                 fmt::format("the values of unit '{}'", name_)));
  memory_.held.push_back({offset + flat.rest.begin * size, bytes});
  const Recess recess;
  return window.reserve(offset + flat.rest.begin * size, bytes);
}

Status Unit::store_away(Flat& flat) {
  const uint64_t size = size_of(flat.desc.dtype);
  std::byte* const here = flat.coded() ? flat.exact : flat.writable + flat.rest.begin * size;
  const uint64_t bytes = flat.rest.size() * size;
  const std::string what = fmt::format("the values of unit '{}'", name_);
  if (rank_.plan.param.tier == Tier::nvme) {
    MERON_ASSIGN(flat.shard,
                 ShardOnNvme::create(rank_, here, bytes, value_phase(flat.rest, size), what));
    return Ok{};
  }
  const uint64_t room = device_value_bytes(rank_.plan, flat.desc.elements,
                                           static_cast<uint64_t>(axes_.index()), axes_.mesh, size);
  MERON_ASSIGN(auto shard,
               ShardOnDevice::create(rank_, here, bytes, room, mirrored(rank_.plan), what));
  if (axes_.devices != nullptr) {
    MERON_TRY(shard->hold_secondary(
        device_secondary_bytes(rank_.plan, flat.desc.elements, static_cast<uint64_t>(axes_.index()),
                               axes_.mesh, size),
        fmt::format("the secondary partition of unit '{}'", name_)));
    MERON_ASSIGN(auto values, axes_.devices->register_values(shard->data(), shard->room()));
    shard->keep(std::move(values));
    if (std::byte* const secondary = shard->secondary(); secondary != nullptr) {
      MERON_ASSIGN(auto copies, axes_.devices->register_values(secondary, shard->secondary_room()));
      shard->keep(std::move(copies));
    }
  }
  flat.on_device = shard.get();
  flat.shard = std::move(shard);
  return Ok{};
}

Status Unit::reserve_encoded(size_t index) {
  Flat& flat = flats_[index];
  const uint64_t size = size_of(flat.desc.dtype);
  uint64_t bytes = wire_bytes(frozen_codec(), flat.rest.size(), size);
  if (!flat.packed) {
    if (!param_coded(rank_.plan, flat.desc, axes_.mesh)) return Ok{};
    MERON_ASSIGN(flat.exact,
                 allocate(flat.part.size() * size, MemoryKind::param, "the exact values"));
    bytes = room_bytes(rank_.plan.param.codec, flat.part.size(), size);
  }
  uint64_t offset = 0;
  MERON_ASSIGN(flat.encoded, allocate(bytes, MemoryKind::param, "the encoded values", &offset));
  own_slot().offsets.encoded[index].store(offset, std::memory_order_relaxed);
  return Ok{};
}

Status Unit::enter(ValueState state) {
  if (state == state_) return Ok{};
  if (!allowed(state_, state)) {
    return forbidden_transition(name_, kValueStateNames[static_cast<size_t>(state_)],
                                kValueStateNames[static_cast<size_t>(state)]);
  }
  state_ = state;
  return Ok{};
}

Status Unit::unlease() {
  if (--leases_ > 0) return Ok{};
  if (!stages_values() && !holds_staged_) return enter(ValueState::partitioned);
  releasing_.local_peers = stages_values();
  Status entered = enter(ValueState::partitioned);
  settle();  // which may release the lock
  return entered;
}

void Unit::settle() {
  if (releasing_.local_peers) {
    if (copied_from()) return settle_later();
    releasing_.local_peers = false;
    own_slot().views_released.store(gathers, std::memory_order_seq_cst);
    rank_.transport.ring();
  }
  drop_staged();
}

void Unit::settle_waiting(Rank& rank) {
  // One at a time: each may release the lock, in which others may be destroyed.
  std::vector<Unit*>& units = rank.to_settle;
  for (size_t looks = units.size(); looks > 0 && !units.empty(); --looks) {
    Unit* const unit = units.front();
    units.erase(units.begin());
    unit->settle();
  }
}

void Unit::settle_later() {
  std::vector<Unit*>& units = rank_.to_settle;
  if (std::find(units.begin(), units.end(), this) == units.end()) units.push_back(this);
}

void Unit::release_version_now() {
  if (!releasing_.version || releasing_.held_for_save || !has_parts() || copied_from()) return;
  releasing_.version = false;
  own_slot().released.store(version_ + 1, std::memory_order_seq_cst);
  rank_.transport.ring();
}

void Unit::end_hold() {
  if (!std::exchange(releasing_.held_for_save, false)) return;
  release_version_now();
  rank_.transport.ring();
}

bool Unit::all_released() {
  release_version_now();
  return !releasing_.version && reached(readers(), version_ + 1, &UnitSlot::released) &&
         !exchanging();
}

// This rank is not missing where it copies the version for a save: see drive_text().
std::vector<int> Unit::unreleased() const {
  std::vector<int> late = behind(readers(), version_ + 1, &UnitSlot::released);
  if (releasing_.held_for_save) std::erase(late, axes_.index());
  return late;
}

bool Unit::exchanging() {
  std::erase_if(exchanges_, [](const auto& batch) { return batch->done(); });
  return !exchanges_.empty();
}

bool Unit::between_replicas() const {
  if (!axes_.replicas()) return false;
  const Plan& plan = rank_.plan;
  if (!is_sharded(plan.param)) return over_all(plan.optimizer, axes_.mesh);
  if (!over_all(plan.optimizer, axes_.mesh)) return false;
  return !keeps_parts() || arrivals.parts_asked != version_;
}

Status Unit::check_updatable() const {
  if (leases_ > 0) {
    return Error(
               MERON_E_STATE,
               fmt::format("unit '{}' is leased {} time{} on this rank", name_, leases_,
                           leases_ == 1 ? "" : "s"),
               "release its gathers, or drop the schedule that keeps it, before the values change")
        .on(name_);
  }
  if (state_ == ValueState::updating || stepping) {
    return Error(MERON_E_STATE, fmt::format("unit '{}' is being updated already", name_),
                 "publish the update, or wait for the step, first")
        .on(name_);
  }
  if (std::any_of(flats_.begin(), flats_.end(), [](const Flat& flat) {
        return flat.master != nullptr && flat.master->parked();
      })) {
    return Error(MERON_E_STATE, fmt::format("the f32 values of unit '{}' are offloaded", name_),
                 "reload the states of its optimizer first")
        .on(name_);
  }
  return Ok{};
}

Status Unit::release_version() {
  MERON_TRY(enter(ValueState::updating));
  releasing_.version = true;
  release_version_now();
  return Ok{};
}

Status Unit::publish(bool frozen_too) {
  MERON_TRY(enter(ValueState::partitioned));
  review_value_codec();
  const bool difference = follows();
  ++version_;
  kernels::QuantError error;
  auto busy = std::make_optional<Busy>(*this);
  for (Flat& flat : flats_) {
    if (!flat.desc.trainable && !frozen_too) continue;
    flat.version = version_;
    flat.difference = difference && flat.desc.trainable;
    // The device encodes values that it holds. The host encodes them if a gather stages them there.
    if (flat.coded() && flat.shard) {
      flat.unpacked = false;
    } else if (flat.coded() || flat.packed) {
      encode_values(flat, &error);
    }
    if (flat.on_device != nullptr) MERON_TRY(on_device_->join(rank_.device->work()));
    if (flat.shard) flat.shard->store();
  }
  busy.reset();
  if (stores() && rank_.plan.param.tier == Tier::device) MERON_TRY(on_device_->note_written());
  if (this->busy()) rank_.drive.storing.push_back(this);
  if (axes_.replicas() && encoding.codec.blocked()) {
    encoding.error = error.relative();
    encoding.worst = error.worst_block;
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(encoding.error));
    auto& errors = own_slot().value_error;
    channel().announce(errors[version_ % errors.size()], bits);
  }
  own_slot().published.store(version_, std::memory_order_seq_cst);
  drop_secondary();
  return Ok{};
}

}  // namespace meron
