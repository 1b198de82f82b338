// SPDX-License-Identifier: Apache-2.0
// The optimizer states of one flat on the device, which updates them (tier device).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/update.h"
#include "plan/state_layout.h"
#include "unit/unit.h"

namespace meron {

// One range of a flat that a step updates with the numbers of one group.
struct DeviceRun {
  Range range;
  kernels::UpdateStep step;  // its seed is for this flat
};

class DeviceStates {
 public:
  // For the elements that this rank owns of the flat, whose values are on the device.
  // MERON_E_NO_MEMORY, MERON_E_DEVICE.
  static Result<std::unique_ptr<DeviceStates>> create(Unit& unit, size_t flat,
                                                      const StateShape& shape);
  ~DeviceStates();
  DeviceStates(const DeviceStates&) = delete;
  DeviceStates& operator=(const DeviceStates&) = delete;

  // The states before the first step: zero, and the master as the values are.
  Status fill();
  // Enqueues the update by the gradient sum, on the host or the device. Runs are ascending.
  Status update(const std::vector<DeviceRun>& runs);

  // The first element whose value of 16 bits is infinite or NaN while its master is finite. Waits
  // for the device.
  Result<std::optional<uint64_t>> find_overflow() const;

  // Copies one array of `range`, a state or kMaster, to or from a record (StateShape) of these
  // elements on the host. They wait for the device.
  static constexpr int kMaster = -1;
  Status read(int state, const Range& range, std::byte* record) const;
  Status write(int state, const Range& range, const std::byte* record);

 private:
  DeviceStates(Unit& unit, size_t flat, const StateShape& shape)
      : unit_(unit), flat_(flat), shape_(shape) {}
  Flat& flat() const { return unit_.flats()[flat_]; }
  DeviceSide& side() const { return *unit_.rank().device; }
  std::byte* owned_values() const;
  // A range of an array: on the device, and its offset in a record of the range.
  struct Slice {
    std::byte* data;
    uint64_t offset, bytes;
  };
  Slice slice_of(int state, const Range& range) const;
  // The gradient sum of the owned elements; from the host it is copied into `room`.
  Result<const float*> gradient(DeviceMemory& room) const;

  Unit& unit_;
  const size_t flat_;
  const StateShape shape_;
  std::array<DeviceMemory, kMaxStates> states_;
  DeviceMemory master_;
  uint64_t bytes_ = 0;
};

}  // namespace meron
