// SPDX-License-Identifier: Apache-2.0
// NCCL's functions act on the calling thread's current device. The driver's own functions change
// it, looked up at run time: the module needs nothing of CUDA to be built or loaded.
#pragma once

#include "meron/backend.h"

namespace meron::nccl {

// The driver's context of a device, from `open` to the end.
class DeviceContext {
 public:
  DeviceContext() = default;
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  // -1: the calling thread's current device, or the first one if it has none. Without a driver it
  // does nothing: NCCL then says that there is none. MERON_E_ARGUMENT: there is no such device.
  meron_status open(int index, meron_backend_failure* failure);
  bool is_open() const { return context_ != nullptr; }

 private:
  friend class CurrentDevice;
  int device_ = -1;
  void* context_ = nullptr;
  bool retained_ = false;
};

// While it lives, the device is the calling thread's current one; then the one before is.
class CurrentDevice {
 public:
  explicit CurrentDevice(const DeviceContext& device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace meron::nccl
