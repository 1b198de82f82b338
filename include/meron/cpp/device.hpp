// SPDX-License-Identifier: Apache-2.0
// meron/cpp/device.hpp: an allocator of the caller's own for a device's memory.
#ifndef MERON_CPP_DEVICE_HPP
#define MERON_CPP_DEVICE_HPP

#include "meron/context.h"
#include "meron/cpp/base.hpp"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Allocates the memory of a context's device, from a framework's cache for example. Called by any
// thread that is inside a call. It may only look and release: see the rule of callbacks in
// meron/meron.h. It must not wait for work of the device.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;

  // `bytes` bytes aligned to 256, to be used by work that is asked of `stream` from now on. Null,
  // or an exception: there is none, and MERON_E_NO_MEMORY follows.
  virtual void* allocate(uint64_t bytes, void* stream) = 0;
  // Takes such memory back: what was asked of `stream` so far may still use it.
  virtual void release(void* data, uint64_t bytes, void* stream) noexcept = 0;

 protected:
  DeviceAllocator() = default;
  DeviceAllocator(const DeviceAllocator&) = default;
  DeviceAllocator& operator=(const DeviceAllocator&) = default;
};

namespace detail {

// The table that calls `allocator`, which must outlive its use.
inline meron_allocator table_of(DeviceAllocator& allocator) noexcept {
  meron_allocator table = MERON_ALLOCATOR_INIT;
  table.user = &allocator;
  table.allocate = [](void* user, uint64_t bytes, void* stream) noexcept -> void* {
    return detail::guarded(
        [=] { return static_cast<DeviceAllocator*>(user)->allocate(bytes, stream); },
        []() -> void* { return nullptr; });  // documented: there is no memory
  };
  table.release = [](void* user, void* data, uint64_t bytes, void* stream) noexcept {
    static_cast<DeviceAllocator*>(user)->release(data, bytes, stream);
  };
  return table;
}

}  // namespace detail
}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_DEVICE_HPP
