// SPDX-License-Identifier: Apache-2.0
#include "param/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/hash.h"
#include "kernels/cpu/accumulate.h"
#include "os/host.h"

namespace meron {
namespace {

template <class State, size_t N>
Error forbidden(const std::string& unit, State from, State to,
                const std::array<std::string_view, N>& names) {
  return Error(MERON_E_INTERNAL,
               fmt::format("unit '{}' cannot go from {} to {}", unit,
                           names[static_cast<size_t>(from)], names[static_cast<size_t>(to)]),
               "please report this defect with the flight record");
}

}  // namespace

Range part_of(const Param& param, const Range& range) {
  const uint64_t begin = std::max(range.begin, param.place.offset);
  const uint64_t end = std::min(range.end, param.place.offset + param.count);
  if (begin >= end) return {0, 0};
  return {begin - param.place.offset, end - param.place.offset};
}

Unit::Unit(Rank& rank, Channel& channel, std::string name,
           std::vector<std::shared_ptr<Param>> params)
    : fresh(params.size(), true),
      rank_(rank),
      channel_(channel),
      name_(std::move(name)),
      name_hash_(hash_text(name_)),
      params_(std::move(params)) {}

Result<std::shared_ptr<Unit>> Unit::create(Rank& rank, Channel& channel, std::string name,
                                           std::vector<std::shared_ptr<Param>> params) {
  std::vector<TensorDesc> tensors;
  tensors.reserve(params.size());
  for (const auto& param : params) tensors.push_back(param->desc);
  MERON_ASSIGN(UnitLayout layout, layout_unit(tensors));

  std::shared_ptr<Unit> unit(new Unit(rank, channel, std::move(name), std::move(params)));
  const uint64_t members = static_cast<uint64_t>(channel.size());
  const uint64_t index = static_cast<uint64_t>(channel.index());
  for (const FlatDesc& desc : layout.flats) {
    Flat flat;
    flat.desc = desc;
    flat.part = shard_range(desc.elements, index, members);
    flat.owned = is_sharded(rank.plan.optimizer) ? flat.part : Range{0, desc.elements};
    unit->bytes_ += flat.value_bytes();
    unit->flats_.push_back(flat);
  }

  MERON_ASSIGN(const uint64_t slots,
               rank.transport.window_allocate(sizeof(UnitSlot) * members,
                                              fmt::format("unit '{}'", unit->name_)));
  MERON_TRY(rank.transport.window().reserve(slots, sizeof(UnitSlot) * members));
  unit->slots_ = reinterpret_cast<UnitSlot*>(rank.transport.window().writable(slots));
  for (const auto reserve : {&Unit::reserve_values, &Unit::reserve_gradients}) {
    Status reserved = (*unit.*reserve)();
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

void Unit::undo() {
  for (const Buffer& buffer : buffers_) rank_.arena().release(buffer);
  buffers_.clear();
  for (const auto& [offset, bytes] : window_parts_) {
    (void)rank_.transport.window().discard(offset, bytes).ok();
    rank_.arena().discharge(bytes, MemoryKind::param);
  }
  window_parts_.clear();
}

Result<std::byte*> Unit::allocate(uint64_t bytes, MemoryKind kind, const char* what,
                                  uint64_t* offset) {
  MERON_ASSIGN(const Buffer buffer,
               rank_.arena().allocate(bytes, kind, fmt::format("{} of unit '{}'", what, name_)));
  buffers_.push_back(buffer);
  if (offset != nullptr) *offset = buffer.offset;
  return buffer.data;
}

Status Unit::reserve_values() {
  Window& window = rank_.transport.window();
  for (size_t f = 0; f < flats_.size(); ++f) {
    Flat& flat = flats_[f];
    if (!is_sharded(rank_.plan.param)) {
      uint64_t offset = 0;
      MERON_ASSIGN(flat.writable,
                   allocate(flat.value_bytes(), MemoryKind::param, "the values", &offset));
      flat.values = flat.writable;
      own_slot().value_offset[f].store(offset, std::memory_order_relaxed);
      continue;
    }
    MERON_ASSIGN(const uint64_t offset, rank_.transport.window_allocate(
                                            flat.value_bytes(), fmt::format("unit '{}'", name_)));
    const uint64_t size = size_of(flat.desc.dtype);
    const uint64_t part_bytes = flat.part.size() * size;
    // A group of several ranks shares the flat: each makes its own pages real.
    MERON_TRY(rank_.arena().charge(part_bytes, MemoryKind::param,
                                   fmt::format("the values of unit '{}'", name_)));
    window_parts_.push_back({offset + flat.part.begin * size, part_bytes});
    MERON_TRY(window.reserve(offset + flat.part.begin * size, part_bytes));
    flat.window_offset = offset;
    flat.values = window.readable(offset);
    flat.writable = window.writable(offset);
  }
  return Ok{};
}

Status Unit::reserve_gradients() {
  const bool whole = !is_sharded(rank_.plan.gradient);
  uint64_t ring_bytes = 0;
  for (size_t f = 0; f < flats_.size(); ++f) {
    Flat& flat = flats_[f];
    if (!flat.desc.trainable) continue;
    const DType type = gradient_type(flat);
    const uint64_t bucket_bytes = flat.desc.elements * size_of(type);
    ring_bytes += round_up(bucket_bytes, kPage);
    uint64_t bucket_offset = 0;
    if (whole) {
      MERON_ASSIGN(flat.bucket, allocate(bucket_bytes, MemoryKind::gradient, "the gradient bucket",
                                         &bucket_offset));
      for (auto& offsets : own_slot().bucket_offset) {
        offsets[f].store(bucket_offset, std::memory_order_relaxed);
      }
    }
    if (whole && type == DType::f32) {
      flat.sum = reinterpret_cast<float*>(flat.bucket) + flat.owned.begin;
      own_slot().sum_offset[f].store(bucket_offset + flat.owned.begin * sizeof(float),
                                     std::memory_order_relaxed);
    } else {
      uint64_t offset = 0;
      MERON_ASSIGN(std::byte* const sum,
                   allocate(flat.owned.size() * sizeof(float), MemoryKind::gradient,
                            "the reduced gradient", &offset));
      flat.sum = reinterpret_cast<float*>(sum);
      own_slot().sum_offset[f].store(offset, std::memory_order_relaxed);
    }
  }
  if (!whole) rank_.ring.require(ring_bytes);
  return Ok{};
}

bool Unit::trainable() const {
  return std::any_of(flats_.begin(), flats_.end(),
                     [](const Flat& flat) { return flat.desc.trainable; });
}

Status Unit::enter(ValueState state) {
  if (state == state_) return Ok{};
  if (!allowed(state_, state)) return forbidden(name_, state_, state, kValueStateNames);
  state_ = state;
  return Ok{};
}

Status Unit::enter(GradientState state) {
  if (!allowed(gradient_state_, state)) {
    return forbidden(name_, gradient_state_, state, kGradientStateNames);
  }
  gradient_state_ = state;
  return Ok{};
}

Status Unit::unlease() {
  if (--leases_ > 0) return Ok{};
  if (remote()) drop_remote_values();
  return enter(ValueState::partitioned);
}

bool Unit::all_released() {
  return remote() ? !exchanging() : all_reached(version_ + 1, &UnitSlot::released);
}

std::vector<int> Unit::unreleased() const {
  if (remote()) return {};
  return behind(version_ + 1, &UnitSlot::released);
}

bool Unit::exchanging() {
  std::erase_if(exchanges_, [](const auto& batch) { return batch->done(); });
  return !exchanges_.empty();
}

Status Unit::hold_remote_values() {
  if (holds_remote_ || !is_sharded(rank_.plan.param)) return Ok{};
  Window& window = rank_.transport.window();
  uint64_t held = 0;
  for (const Flat& flat : flats_) {
    const uint64_t own = flat.part.size() * size_of(flat.desc.dtype);
    MERON_TRY(window.reserve(flat.window_offset, flat.value_bytes()));
    held += flat.value_bytes() - own;
  }
  MERON_TRY(rank_.arena().charge(held, MemoryKind::param,
                                 fmt::format("the gathered values of unit '{}'", name_)));
  holds_remote_ = true;
  return Ok{};
}

// While something still arrives the memory stays, until the next gather is let go of.
void Unit::drop_remote_values() {
  if (!holds_remote_ || exchanging()) return;
  holds_remote_ = false;
  Window& window = rank_.transport.window();
  uint64_t held = 0;
  for (const Flat& flat : flats_) {
    const uint64_t size = size_of(flat.desc.dtype);
    const uint64_t end = flat.value_bytes();
    const uint64_t part_begin = flat.part.begin * size, part_end = flat.part.end * size;
    // Only memory is given back: what stays is overwritten by the next gather.
    (void)window.discard(flat.window_offset, part_begin).ok();
    (void)window.discard(flat.window_offset + part_end, end - part_end).ok();
    held += end - (part_end - part_begin);
  }
  rank_.arena().discharge(held, MemoryKind::param);
}

bool Unit::bucket_read(uint64_t reduction) const {
  if (!remote()) return all_reached(reduction, &UnitSlot::consumed);
  return slot(channel_.index()).consumed.load(std::memory_order_seq_cst) >= reduction;
}

std::vector<int> Unit::bucket_readers(uint64_t reduction) const {
  if (remote()) return {};
  return behind(reduction, &UnitSlot::consumed);
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
  return Ok{};
}

Status Unit::release_version() {
  MERON_TRY(enter(ValueState::updating));
  own_slot().released.store(version_ + 1, std::memory_order_seq_cst);
  return Ok{};
}

Status Unit::publish(bool frozen_too) {
  MERON_TRY(enter(ValueState::partitioned));
  ++version_;
  for (Flat& flat : flats_) {
    if (flat.desc.trainable || frozen_too) flat.version = version_;
  }
  own_slot().published.store(version_, std::memory_order_seq_cst);
  return Ok{};
}

}  // namespace meron
