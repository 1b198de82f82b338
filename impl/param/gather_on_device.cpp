// SPDX-License-Identifier: Apache-2.0
// What of a gather lies in memory of the device: brought there by the devices themselves, or copied
// from the host's memory; and who waits for it.
#include <fmt/format.h>

#include <algorithm>

#include "param/device_group.h"
#include "param/gather.h"

namespace meron {

// With what follows the last rank's row or part: see device_value_bytes().
Status GatherOperation::reserve() {
  const DeviceSide& side = *units_.front()->rank().device;
  const Plan& plan = units_.front()->rank().plan;
  const MeshShape& mesh = units_.front()->axes().mesh;
  const bool of_parts = mesh.replicas > 1 && over_all(plan.param, mesh);
  for (const auto& unit : units_) {
    std::vector<DeviceMemory>& rooms = rooms_.emplace_back();
    std::vector<DeviceMemory>& rows = rows_.emplace_back();
    const auto take = [&](std::vector<DeviceMemory>& to, uint64_t bytes) -> Status {
      MERON_ASSIGN(
          DeviceMemory room,
          side.device().allocate(bytes, side.up(),
                                 fmt::format("the gathered values of unit '{}'", unit->name())));
      to.push_back(std::move(room));
      return Ok{};
    };
    for (const Flat& flat : unit->flats()) {
      const uint64_t row =
          shard_elements(flat.desc.elements, mesh.shards) * size_of(flat.desc.dtype);
      if (mesh.shards > 1) MERON_TRY(take(rooms, mesh.shards * row));
      if (of_parts) MERON_TRY(take(rows, std::max(row, mesh.replicas * flat.resident->room())));
    }
  }
  return Ok{};
}

void GatherOperation::add_refresh(Unit& unit, std::vector<DeviceGroup::Part>& parts) const {
  if (!unit.refreshes_rows() || unit.rows_refreshed == unit.version()) return;
  unit.rows_refreshed = unit.version();
  const Axes& axes = unit.axes();
  for (const Flat& flat : unit.flats()) {
    const uint64_t size = size_of(flat.desc.dtype);
    const uint64_t part = shard_elements(flat.row.size(), axes.mesh.replicas) * size;
    if (part == 0) continue;
    std::byte* const row = flat.resident->data();
    flat.resident->note_changed();
    parts.push_back({row + static_cast<uint64_t>(axes.own_replica()) * part, row, part});
    add(unit.rank().counters.gather_copied, (flat.row.size() - flat.part.size()) * size);
  }
}

// For a gather that goes by the host: rows are read there.
Status GatherOperation::refresh_rows() {
  DeviceSide& side = *units_.front()->rank().device;
  std::vector<DeviceGroup::Part> parts;
  for (const auto& unit : units_) {
    add_refresh(*unit, parts);
    MERON_TRY(unit->on_device()->join(side.up()));
  }
  if (parts.empty()) return Ok{};
  MERON_TRY(units_.front()->axes().devices->all_gather(DeviceAxis::replica, parts,
                                                       {sequence(), deadline(), describe()}));
  for (const auto& unit : units_) {
    MERON_TRY(unit->on_device()->note_gathered());
    MERON_TRY(unit->on_device()->join(side.work()));
  }
  return Ok{};
}

Status GatherOperation::launch() {
  DeviceSide& side = *units_.front()->rank().device;
  DeviceGroup& devices = *units_.front()->axes().devices;
  const MeshShape& mesh = units_.front()->axes().mesh;
  std::vector<DeviceGroup::Part> parts, rows;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = *units_[u];
    add_refresh(unit, parts);
    for (size_t f = 0; f < unit.flats().size(); ++f) {
      const Flat& flat = unit.flats()[f];
      const std::byte* row = flat.resident->data();
      if (!rows_[u].empty()) {
        const uint64_t part = flat.resident->room();
        if (part > 0) parts.push_back({row, rows_[u][f].data(), part});
        row = rows_[u][f].data();
      }
      const uint64_t bytes =
          shard_elements(flat.desc.elements, mesh.shards) * size_of(flat.desc.dtype);
      if (mesh.shards > 1 && bytes > 0) rows.push_back({row, rooms_[u][f].data(), bytes});
    }
    // Behind what has written them.
    MERON_TRY(unit.on_device()->join(side.up()));
  }
  const DeviceGroup::Call call{sequence(), deadline(), describe()};
  if (!parts.empty()) MERON_TRY(devices.all_gather(DeviceAxis::replica, parts, call));
  if (!rows.empty()) MERON_TRY(devices.all_gather(DeviceAxis::shard, rows, call));
  for (; device_leases_ < units_.size(); ++device_leases_) {
    Unit& unit = *units_[device_leases_];
    MERON_TRY(unit.on_device()->note_gathered());
    // Rows that are whole: where they lie, or where they were brought together.
    if (mesh.shards == 1) rooms_[device_leases_] = std::move(rows_[device_leases_]);
    if (rooms_[device_leases_].empty()) {
      std::vector<std::byte*> places;
      for (const Flat& flat : unit.flats()) places.push_back(flat.resident->data());
      MERON_TRY(unit.on_device()->lease_in_place(std::move(places)));
    } else {
      unit.on_device()->lease_gathered(std::move(rooms_[device_leases_]));
    }
    if (mode_ != GatherMode::view) continue;
    for (const Flat& flat : unit.flats()) {
      add(unit.rank().counters.gather_mapped,
          (flat.desc.elements - flat.rest.size()) * size_of(flat.desc.dtype));
    }
  }
  rooms_.clear();
  rows_.clear();
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
