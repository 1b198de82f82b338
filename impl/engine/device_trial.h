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
  // Begins a gather and an exchange of a few bytes between the axis' `members`. This rank is member
  // `own_place`. `call`: the channel's last.
  static Result<DeviceTrial> begin(DeviceSide& side, DeviceGroup& devices, DeviceAxis axis,
                                   uint64_t members, uint64_t own_place, uint64_t call,
                                   Deadline deadline);
  // Once both are done: checks that the received bytes are those that were sent.
  Status check(Device& device, void* stream) const;

 private:
  DeviceTrial(DeviceMemory room, uint64_t members) : room_(std::move(room)), members_(members) {}

  DeviceMemory room_;
  std::optional<DeviceMemory> window_;  // where values are gathered within one
  uint64_t members_;
  std::byte* gathered_ = nullptr;
  std::byte* exchanged_ = nullptr;
};

// Checks that memory can be registered. Releases it at once, since peers may not register theirs.
Status try_registration(DeviceSide& side, DeviceGroup& devices);

}  // namespace meron
