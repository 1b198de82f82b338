// SPDX-License-Identifier: Apache-2.0
#include "values/gather_by_devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "plan/value_layout.h"
#include "quant/device_wire.h"

namespace meron {

// A row whose parts travel encoded: `slots` has one of each replica.
struct GatherByDevices::EncodedRow {
  const Unit* unit;
  const Flat* flat;
  std::byte* slots;
  std::byte* row;
};

namespace {

uint64_t encoded_stride(const Unit& unit, const Flat& flat) {
  return device_encoded_stride(unit.codec_of(flat), flat.row.size(), unit.axes().mesh,
                               size_of(flat.desc.dtype));
}

// If replicas hold the same rows: adds the parts that the others have updated.
void add_refresh(Unit& unit, std::vector<DeviceGroup::Part>& parts) {
  if (!unit.refreshes_rows() || unit.arrivals.rows_refreshed == unit.version()) return;
  unit.arrivals.rows_refreshed = unit.version();
  const Axes& axes = unit.axes();
  Counters& counters = unit.rank().counters;
  for (const Flat& flat : unit.flats()) {
    const uint64_t size = size_of(flat.desc.dtype);
    const uint64_t part = shard_elements(flat.row.size(), axes.mesh.replicas) * size;
    if (part == 0) continue;
    std::byte* const row = flat.on_device->data();
    flat.on_device->note_changed();
    parts.push_back({row + static_cast<uint64_t>(axes.own_replica()) * part, row, part});
    add(counters.gather_copied, (flat.row.size() - flat.part.size()) * size);
    for (int i = 0; i < axes.replica->size(); ++i) {
      if (axes.replica->is_local(i)) continue;
      const auto place = static_cast<uint64_t>(axes.of_replica(i));
      add(counters.inter_node_gather,
          part_range(flat.desc.elements, place, axes.mesh).size() * size);
    }
  }
}

}  // namespace

// encode_part() encodes this rank's part of a row, from the exact values. decode_row() decodes the
// full row from all ranks' parts. All ranks use the decoded values, even of their own part.
Status GatherByDevices::encode_part(const EncodedRow& row) {
  const Unit& unit = *row.unit;
  const Flat& flat = *row.flat;
  if (flat.part.size() == 0) return Ok{};
  const auto own = static_cast<uint64_t>(unit.axes().own_replica());
  const meron_encode_task task{row.slots + own * encoded_stride(unit, flat), flat.on_device->data(),
                               nullptr, flat.part.size(), unit.value_seed(flat)};
  const DeviceSide& side = *unit.rank().device;
  const DeviceWire wire(unit.codec_of(flat), side.device(), side.up());
  return wire.encode({&task, 1}, flat.desc.dtype);
}

Status GatherByDevices::decode_row(const EncodedRow& row) {
  const Unit& unit = *row.unit;
  const Flat& flat = *row.flat;
  const uint64_t stride = encoded_stride(unit, flat);
  std::vector<meron_cast_task> tasks;
  for (int i = 0; i < unit.axes().replica->size(); ++i) {
    const Range part = part_range(
        flat.desc.elements, static_cast<uint64_t>(unit.axes().of_replica(i)), unit.axes().mesh);
    if (part.size() == 0) continue;
    tasks.push_back({row.row + (part.begin - flat.row.begin) * size_of(flat.desc.dtype),
                     row.slots + static_cast<uint64_t>(i) * stride, part.size()});
  }
  const DeviceSide& side = *unit.rank().device;
  const DeviceWire wire(unit.codec_of(flat), side.device(), side.up());
  return wire.decode(tasks, flat.desc.dtype);
}

// With what follows the last rank's row or part: see device_value_bytes().
Status GatherByDevices::reserve() {
  const DeviceSide& side = *units_.front()->rank().device;
  const Plan& plan = units_.front()->rank().plan;
  const MeshShape& mesh = units_.front()->axes().mesh;
  const bool of_parts =
      mesh.replicas > 1 && over_all(plan.param, mesh) && !plan.param.secondary_partition;
  GatherWindow* const window = units_.front()->axes().devices->window();
  for (const auto& unit : units_) {
    std::vector<DeviceMemory>& rooms = rooms_.emplace_back();
    std::vector<DeviceMemory>& rows = rows_.emplace_back();
    std::vector<DeviceMemory>& slots = slots_.emplace_back();
    const auto take = [&](DeviceMemory& to, uint64_t bytes) -> Status {
      MERON_ASSIGN(
          to, side.device().allocate(
                  bytes, side.up(), fmt::format("the gathered values of unit '{}'", unit->name())));
      return Ok{};
    };
    for (const Flat& flat : unit->flats()) {
      const uint64_t row =
          shard_elements(flat.desc.elements, mesh.shards) * size_of(flat.desc.dtype);
      if (mesh.shards > 1) {
        std::optional<DeviceMemory> room;
        if (window != nullptr) {
          MERON_ASSIGN(room, window->take(mesh.shards * row));
        }
        if (room) {
          rooms.push_back(*std::move(room));
        } else {
          MERON_TRY(take(rooms.emplace_back(), mesh.shards * row));
        }
      }
      if (of_parts) {
        MERON_TRY(take(rows.emplace_back(), std::max(row, mesh.replicas * flat.on_device->room())));
      }
      slots.emplace_back();
      if (!flat.coded() || flat.on_device->secondary_version == flat.version) continue;
      MERON_TRY(take(slots.back(), mesh.replicas * encoded_stride(*unit, flat)));
    }
  }
  return Ok{};
}

std::optional<uint64_t> GatherByDevices::place_in_window(uint64_t* detail) const {
  std::optional<uint64_t> first;
  const GatherWindow* const window = units_.front()->axes().devices->window();
  if (window == nullptr) return first;
  for (const std::vector<DeviceMemory>& rooms : rooms_) {
    for (const DeviceMemory& room : rooms) {
      const std::optional<uint64_t> place = window->place_of(room.data());
      *detail = hash_combine(*detail, place.value_or(UINT64_MAX));
      if (!first) first = place;
    }
  }
  return first;
}

// Copy engines need the source in the window too, so each rank's row is first copied to its place
// among the others. This copies 1/ranks of the gathered bytes within the device.
Status GatherByDevices::move_into_window(std::vector<DeviceGroup::Part>& rows) const {
  const DeviceGroup& devices = *units_.front()->axes().devices;
  if (devices.window() == nullptr) return Ok{};
  const DeviceSide& side = *units_.front()->rank().device;
  const auto own = static_cast<uint64_t>(units_.front()->axes().own_shard());
  for (DeviceGroup::Part& row : rows) {
    if (!devices.window()->place_of(row.to)) continue;
    std::byte* const place = row.to + own * row.bytes;
    MERON_TRY(side.device().copy(place, row.from, row.bytes, side.up()));
    row.from = place;
  }
  return Ok{};
}

// If replicas share a row: gathers the row's parts first, into the secondary partition if there is
// one.
void GatherByDevices::add_parts(size_t number, std::vector<DeviceGroup::Part>& parts,
                                std::vector<EncodedRow>& encoded) const {
  const Unit& unit = *units_[number];
  Counters& counters = unit.rank().counters;
  for (size_t f = 0; f < units_[number]->flats().size(); ++f) {
    const Flat& flat = units_[number]->flats()[f];
    std::byte* const row = row_of(number, f);
    if (row == flat.on_device->data()) continue;
    if (row == flat.on_device->secondary()) {
      if (flat.on_device->secondary_version == flat.version) continue;
      flat.on_device->secondary_version = flat.version;
    }
    const uint64_t size = size_of(flat.desc.dtype);
    for (const auto& [offset, bytes] : unit.parts_of(flat)) {
      add(counters.gather_copied, bytes);
      add(counters.inter_node_gather,
          flat.coded() ? wire_bytes(unit.codec_of(flat), bytes / size, size) : bytes);
    }
    if (flat.coded()) {
      std::byte* const slots = slots_[number][f].data();
      const uint64_t stride = encoded_stride(unit, flat);
      const auto own = static_cast<uint64_t>(unit.axes().own_replica());
      if (stride > 0) parts.push_back({slots + own * stride, slots, stride});
      encoded.push_back({&unit, &flat, slots, row});
      continue;
    }
    const uint64_t part = flat.on_device->room();
    if (part > 0) parts.push_back({flat.on_device->data(), row, part});
  }
}

std::byte* GatherByDevices::row_of(size_t unit, size_t flat) const {
  if (!rows_[unit].empty()) return rows_[unit][flat].data();
  const ShardOnDevice& values = *units_[unit]->flats()[flat].on_device;
  return values.secondary() != nullptr ? values.secondary() : values.data();
}

Status GatherByDevices::launch(const DeviceGroup::Call& call, size_t& leased) {
  DeviceSide& side = *units_.front()->rank().device;
  DeviceGroup& devices = *units_.front()->axes().devices;
  const MeshShape& mesh = units_.front()->axes().mesh;
  std::vector<DeviceGroup::Part> parts, rows;
  std::vector<EncodedRow> encoded;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = *units_[u];
    add_refresh(unit, parts);
    add_parts(u, parts, encoded);
    for (size_t f = 0; f < unit.flats().size(); ++f) {
      const Flat& flat = unit.flats()[f];
      const uint64_t bytes =
          shard_elements(flat.desc.elements, mesh.shards) * size_of(flat.desc.dtype);
      if (mesh.shards > 1 && bytes > 0) rows.push_back({row_of(u, f), rooms_[u][f].data(), bytes});
    }
    // Behind what has written them.
    MERON_TRY(unit.on_device()->join(side.up()));
  }
  for (const EncodedRow& row : encoded) MERON_TRY(encode_part(row));
  if (!parts.empty()) MERON_TRY(devices.all_gather(DeviceAxis::replica, parts, call));
  for (const EncodedRow& row : encoded) MERON_TRY(decode_row(row));
  MERON_TRY(move_into_window(rows));
  if (!rows.empty()) MERON_TRY(devices.all_gather(DeviceAxis::shard, rows, call));
  for (; leased < units_.size(); ++leased) {
    Unit& unit = *units_[leased];
    MERON_TRY(unit.on_device()->note_gathered());
    // Rows that are whole: where they were gathered for this call, or where they stay.
    if (mesh.shards == 1) rooms_[leased] = std::move(rows_[leased]);
    if (rooms_[leased].empty()) {
      std::vector<std::byte*> places;
      for (size_t f = 0; f < unit.flats().size(); ++f) {
        places.push_back(row_of(leased, f));
      }
      MERON_TRY(unit.on_device()->lease_in_place(std::move(places)));
    } else {
      unit.on_device()->lease_gathered(std::move(rooms_[leased]));
    }
  }
  rooms_.clear();
  rows_.clear();
  slots_.clear();
  return Ok{};
}

Status refresh_rows_on_device(std::span<const std::shared_ptr<Unit>> units,
                              const DeviceGroup::Call& call) {
  DeviceSide& side = *units.front()->rank().device;
  std::vector<DeviceGroup::Part> parts;
  for (const auto& unit : units) {
    add_refresh(*unit, parts);
    MERON_TRY(unit->on_device()->join(side.up()));
  }
  if (parts.empty()) return Ok{};
  MERON_TRY(units.front()->axes().devices->all_gather(DeviceAxis::replica, parts, call));
  for (const auto& unit : units) {
    MERON_TRY(unit->on_device()->note_gathered());
    MERON_TRY(unit->on_device()->join(side.work()));
  }
  return Ok{};
}

}  // namespace meron
