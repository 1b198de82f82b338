// SPDX-License-Identifier: Apache-2.0
// What of a gather lies in memory of the device: brought there by the devices themselves, or copied
// from the host's memory; and who waits for it.
#include <fmt/format.h>

#include "param/device_group.h"
#include "param/gather.h"

namespace meron {

// Whole flats, with what follows the last rank's part: see device_value_bytes().
Status GatherOperation::reserve() {
  const DeviceSide& side = *units_.front()->rank().device;
  const auto ranks = static_cast<uint64_t>(channel_.size());
  for (const auto& unit : units_) {
    std::vector<DeviceMemory>& rooms = rooms_.emplace_back();
    for (const Flat& flat : unit->flats()) {
      MERON_ASSIGN(
          DeviceMemory room,
          side.device().allocate(ranks * flat.resident->room(), side.up(),
                                 fmt::format("the gathered values of unit '{}'", unit->name())));
      rooms.push_back(std::move(room));
    }
  }
  return Ok{};
}

Status GatherOperation::launch() {
  DeviceSide& side = *units_.front()->rank().device;
  std::vector<DeviceGroup::Part> parts;
  for (size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = *units_[u];
    for (size_t f = 0; f < rooms_[u].size(); ++f) {
      const ResidentValues& own = *units_[u]->flats()[f].resident;
      if (own.room() > 0) parts.push_back({own.data(), rooms_[u][f].data(), own.room()});
    }
    // Behind what has written them.
    MERON_TRY(unit.on_device()->join(side.up()));
  }
  DeviceGroup& devices = *units_.front()->axes().devices;
  MERON_TRY(devices.all_gather(parts, {sequence(), deadline(), describe()}));
  for (; device_leases_ < units_.size(); ++device_leases_) {
    Unit& unit = *units_[device_leases_];
    MERON_TRY(unit.on_device()->lease_gathered(std::move(rooms_[device_leases_])));
    if (mode_ != GatherMode::view) continue;
    for (const Flat& flat : unit.flats()) {
      add(unit.rank().counters.gather_mapped,
          (flat.desc.elements - flat.rest.size()) * size_of(flat.desc.dtype));
    }
  }
  rooms_.clear();
  return view_on_device_ ? side.wake_after(side.up()) : Ok{};
}

Status GatherOperation::lease_device() {
  for (; device_leases_ < units_.size(); ++device_leases_) {
    MERON_TRY(units_[device_leases_]->lease_device());
  }
  return Ok{};
}

Status GatherOperation::join(void* stream) {
  for (const auto& unit : units_) MERON_TRY(unit->on_device()->join(stream));
  joined_ = true;
  return Ok{};
}

Result<bool> GatherOperation::may_read() const {
  if (!on_device() || joined_) return true;
  return settled();
}

Result<bool> GatherOperation::settled() const {
  for (const auto& unit : units_) {
    MERON_ASSIGN(const bool settled, unit->on_device()->settled());
    if (!settled) return false;
  }
  return true;
}

}  // namespace meron
