// SPDX-License-Identifier: Apache-2.0
// What an optimizer keeps of one flat on the device, which updates it there (tier device).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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
  // Of all that this rank owns of the flat, whose values lie on the device. MERON_E_NO_MEMORY,
  // MERON_E_DEVICE.
  static Result<std::unique_ptr<DeviceStates>> create(Unit& unit, size_t flat,
                                                      const StateShape& shape);
  ~DeviceStates();
  DeviceStates(const DeviceStates&) = delete;
  DeviceStates& operator=(const DeviceStates&) = delete;

  // The states before the first step: zero, and the master as the values are.
  Status fill();
  // Asks for the update by the gradient that has been summed, wherever that is. Runs are ascending.
  Status update(const std::vector<DeviceRun>& runs);

  // Copies one array of `range`, a state or kMaster, to and from its place in a record (StateShape)
  // of these elements on the host. They wait for the device.
  static constexpr int kMaster = -1;
  Status read(int state, const Range& range, std::byte* record) const;
  Status write(int state, const Range& range, const std::byte* record);

 private:
  DeviceStates(Unit& unit, size_t flat, const StateShape& shape)
      : unit_(unit), flat_(flat), shape_(shape) {}
  Flat& flat() const { return unit_.flats()[flat_]; }
  DeviceSide& side() const { return *unit_.rank().device; }
  std::byte* owned_values() const;
  // Where an array's part of a range is, on the device and in a record of the range.
  struct Part {
    std::byte* data;
    uint64_t offset, bytes;
  };
  Part part_of(int state, const Range& range) const;
  // The sum of the gradient of what is owned; from the host it is copied into `room`.
  Result<const float*> gradient(DeviceMemory& room) const;

  Unit& unit_;
  const size_t flat_;
  const StateShape shape_;
  std::array<DeviceMemory, kMaxStates> states_;
  DeviceMemory master_;
  uint64_t bytes_ = 0;
};

}  // namespace meron
