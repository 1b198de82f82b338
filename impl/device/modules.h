// SPDX-License-Identifier: Apache-2.0
// Which device, and which collectives, a name means; and the modules that know them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/collectives.h"
#include "device/device.h"

namespace meron {

// "cuda" (the calling thread's current device), "cuda:1", "emulated", "emulated:0".
// MERON_E_ARGUMENT: no such name or number; MERON_E_UNSUPPORTED, with the reason: its module cannot
// be loaded, or cannot work here.
Result<std::shared_ptr<Device>> open_device(const std::string& name,
                                            DeviceAllocator allocator = {});

// "nccl" for devices of kind cuda, "emulated" for those of kind emulated.
// MERON_E_ARGUMENT: no such name; MERON_E_UNSUPPORTED, with the reason: the module, or the library
// that it uses, cannot be loaded or used.
Result<std::shared_ptr<const DeviceCollectives>> open_collectives(const std::string& kind);

// A module as `meron info` reports it.
struct DeviceModule {
  std::string name;
  std::string summary;  // versions, where it works
  std::string reason;   // why it does not; empty: it does
  std::vector<meron_device_info> devices;
};
DeviceModule probe_cuda();
DeviceModule probe_nccl();  // of no devices; the summary is "nccl 2.28.9 at /path"

}  // namespace meron
