// SPDX-License-Identifier: Apache-2.0
// A trial of the collectives between the devices of an axis' ranks: a library may open
// communicators over links that do not work.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "device/device_group.h"

namespace meron {

class DeviceTrial {
 public:
  // Begins a gather and an exchange of a few bytes from each of the axis' `members`, of which this
  // rank is the one at `own_place`. `call`: the channel's last.
  static Result<DeviceTrial> begin(DeviceSide& side, DeviceGroup& devices, DeviceAxis axis,
                                   uint64_t members, uint64_t own_place, uint64_t call,
                                   Deadline deadline);
  // Once both are done: whether the bytes are those that were sent.
  Status check(Device& device, void* stream) const;

 private:
  DeviceTrial(DeviceMemory room, uint64_t members) : room_(std::move(room)), members_(members) {}

  DeviceMemory room_;
  std::optional<DeviceMemory> window_;  // where values are gathered within one
  uint64_t members_;
  std::byte* gathered_ = nullptr;
  std::byte* exchanged_ = nullptr;
};

// Whether memory can be registered. It is released at once, since peers may turn out to register
// none.
Status try_registration(DeviceSide& side, DeviceGroup& devices);

}  // namespace meron
