// SPDX-License-Identifier: Apache-2.0
// How a unit ends: what stands against it, when nothing of this rank uses it any more, and what it
// gives back once that is so on every rank.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/held.h"
#include "unit/unit.h"

namespace meron {
namespace {

template <class Words>
void clear_words(Words& words) {
  for (auto& word : words) word.store(0, std::memory_order_seq_cst);
}

void clear_slot(UnitSlot& slot) {
  for (auto* word : {&slot.published, &slot.released, &slot.arrived, &slot.views_released,
                     &slot.contributed, &slot.shard_ready, &slot.summed, &slot.consumed}) {
    word->store(0, std::memory_order_seq_cst);
  }
  clear_words(slot.offsets.values);
  for (auto& offsets : slot.offsets.buckets) clear_words(offsets);
  clear_words(slot.offsets.sums);
  clear_words(slot.offsets.encoded);
  for (auto& offsets : slot.offsets.rows) clear_words(offsets);
  clear_words(slot.widened);
  clear_words(slot.value_error);
  clear_words(slot.gradient_error);
}

}  // namespace

Status Unit::check_destroyable() const {
  const auto held = [&](const char* by, const char* advice) {
    return Error(MERON_E_STATE, fmt::format("unit '{}' {}", name_, by), advice).on(name_);
  };
  if (destroying) {
    return held("is being destroyed by another thread", "destroy a unit once, from one thread");
  }
  if (leases_ > 0) {
    return Error(MERON_E_STATE,
                 fmt::format("unit '{}' is gathered on this rank ({} lease{})", name_, leases_,
                             leases_ == 1 ? "" : "s"),
                 "release its gathers first, and the schedules and arrays that show its values")
        .on(name_);
  }
  if (schedules > 0) return held("is in a schedule", "release the schedule first");
  if (has_optimizer) return held("has an optimizer", "release the optimizer first");
  if (stepping) return held("takes part in a step", "wait for the step first");
  if (state_ == ValueState::updating) return held("is being updated", "publish the update first");
  if (state_ != ValueState::partitioned) {
    return held("is being gathered", "wait for the gather, and release it, first");
  }
  return Ok{};
}

bool Unit::quiet() {
  settle();
  return !releasing_.local_peers && !holds_staged_ && !exchanging() && !busy() && !copied_from() &&
         streams_done();
}

// Joined devices: launches read a unit's values and gradients, also for peers. They precede these
// events on the streams, and every rank records its own before it agrees.
bool Unit::streams_done() {
  if (axes_.devices == nullptr || !uses_device()) return true;
  DeviceSide& side = *rank_.device;
  if (last_work_.empty()) {
    for (void* const stream : {side.up(), side.work()}) {
      // A device that has failed does nothing any more.
      auto event = side.device().record(stream);
      if (!event.ok() || !side.wake_after(stream).ok()) return true;
      last_work_.push_back(std::move(*event));
    }
  }
  return std::all_of(last_work_.begin(), last_work_.end(), [](const DeviceEvent& event) {
    const auto done = event.come();
    return !done.ok() || *done;
  });
}

void Unit::detach() {
  std::erase(rank_.to_settle, this);
  std::erase(rank_.drive.storing, this);
  for (const auto& param : params_) param->unit = nullptr;
}

void Unit::release_memory() {
  Window& window = rank_.transport.window();
  const Staged others = staged();
  // All that this rank may have written of the window. Pages at the ends, which are shared with
  // neighbours, stay: each clears its bytes there, because the next unit begins with zeros.
  Ranges written = memory_.held;
  for (const Ranges* ranges : {&others.parts, &others.rows, &others.own}) {
    written.insert(written.end(), ranges->begin(), ranges->end());
  }
  std::vector<FlatDesc> descriptions;
  std::vector<std::unique_ptr<Shard>> there;
  for (Flat& flat : flats_) {
    descriptions.push_back(flat.desc);
    if (flat.secondary_held) give_back(parts_of(flat), MemoryKind::param);
    flat.secondary_held = false;
    if (rank_.device) {
      const uint64_t begin = flat.rest.begin * size_of(flat.desc.dtype);
      for (std::byte* const pinned : {flat.writable, flat.writable + begin, flat.exact}) {
        if (pinned != nullptr) rank_.device->unpin(pinned);
      }
    }
    if (flat.shard) {
      flat.shard->give_back();
      if (flat.on_device != nullptr) there.push_back(std::move(flat.shard));
      flat.shard = nullptr;
    }
    flat.on_device = nullptr;
  }
  on_device_.reset();
  if (!stores()) rank_.forget_resident(axes_.number, descriptions, axes_.mesh);
  {
    // Pages go, registrations end, and a device may have to end its work first: no other thread
    // knows the unit.
    const Recess recess;
    last_work_.clear();
    there.clear();
    for (const auto& [offset, bytes] : written) window.clear(offset, bytes);
    for (const Buffer& buffer : std::exchange(memory_.buffers, {})) rank_.arena().release(buffer);
  }
  for (const auto& [offset, bytes] : std::exchange(memory_.held, {})) {
    rank_.arena().discharge(bytes, MemoryKind::param);
  }
  for (int m = 0; m < channel().size(); ++m) {
    if (m == axes_.index() || !channel().is_local(m)) clear_slot(slots_[m]);
  }
  for (const auto& [offset, bytes] : std::exchange(memory_.all, {})) {
    rank_.transport.window_free(offset, bytes, axes_.number);
  }
  for (Flat& flat : flats_) {
    flat.values = nullptr;
    flat.writable = flat.exact = flat.encoded = nullptr;
  }
}

}  // namespace meron
