// SPDX-License-Identifier: Apache-2.0
// What of a gather lies in memory of the device, and who waits for it.
#include <algorithm>

#include "values/gather.h"

namespace meron {

Status GatherOperation::begin_on_devices() {
  const DeviceGroup::Call call{sequence(), deadline(), describe()};
  if (!by_devices_) return refresh_rows_on_device(units_, call);
  for (const auto& unit : units_) count(*unit);
  MERON_TRY(by_devices_->launch(call, device_leases_));
  DeviceSide& side = *units_.front()->rank().device;
  return view_on_device_ ? side.wake_after(side.up()) : Ok{};
}

std::optional<uint64_t> GatherOperation::place_in_window(uint64_t* detail) const {
  return by_devices_ ? by_devices_->place_in_window(detail) : std::nullopt;
}

// Counted as on the host: a node stages what others have once, and its ranks each a share.
void GatherOperation::count(Unit& unit) const {
  const Unit::Staged remote = unit.staged();
  Counters& counters = unit.rank().counters;
  uint64_t local = 0;
  for (const Flat& flat : unit.flats()) {
    local += (flat.desc.elements - flat.rest.size()) * size_of(flat.desc.dtype);
  }
  for (const auto& [offset, bytes] : remote.parts) local -= bytes;
  for (const auto& [offset, bytes] : remote.rows) {
    local -= bytes;
    add(counters.gather_copied, bytes);
    add(counters.inter_node_gather, bytes);
  }
  if (mode_ == GatherMode::view) add(counters.gather_mapped, local);
}

Result<bool> GatherOperation::lease_device() {
  for (; device_leases_ < units_.size(); ++device_leases_) {
    if (units_[device_leases_]->busy_with_values()) return false;
    const Unit::Busy busy(*units_[device_leases_]);
    MERON_TRY(units_[device_leases_]->lease_device());
  }
  for (const auto& unit : units_) {
    if (unit->busy_with_values()) return false;
    const Unit::Busy busy(*unit);
    MERON_ASSIGN(const bool asked, unit->on_device()->advance(unit->rank().threads));
    if (!asked) return false;
  }
  return true;
}

Status GatherOperation::join(void* stream) {
  for (const auto& unit : units_) MERON_TRY(unit->on_device()->join(stream));
  if (std::find(joined_.begin(), joined_.end(), stream) == joined_.end()) joined_.push_back(stream);
  return Ok{};
}

Result<bool> GatherOperation::may_read() const {
  if (!on_device() || !joined_.empty()) return true;
  return settled();
}

Result<bool> GatherOperation::settled() const {
  for (const auto& unit : units_) {
    MERON_ASSIGN(const bool settled, unit->on_device()->settled());
    if (!settled) return false;
  }
  if (!by_devices_) return true;
  return units_.front()->axes().devices->check(sequence());
}

}  // namespace meron
