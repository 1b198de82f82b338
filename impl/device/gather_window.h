// SPDX-License-Identifier: Apache-2.0
// Memory for full values in a registered window, at the same offset on every rank of an axis. So a
// library of collectives can let copy engines write them, and leaves all multiprocessors to the
// computation (NCCL's zero-CTA policy).
//
// Ranks do not exchange offsets. The allocator is deterministic, so ranks that gather and release
// in the same order get the same ones. Each call's record has the offset, to detect a rank that
// released in another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/collectives.h"
#include "device/device.h"
#include "memory/offset_allocator.h"

namespace meron {

class GatherWindow final : public DeviceMemoryOwner,
                           public std::enable_shared_from_this<GatherWindow> {
 public:
  // Allocated memory is written on `up`.
  GatherWindow(std::shared_ptr<Device> device, void* up, DeviceWindow window);

  // Memory that may be written on `up` from now on; nothing if none is free.
  Result<std::optional<DeviceMemory>> take(uint64_t bytes);
  // Offset in the window; nothing for other memory.
  std::optional<uint64_t> place_of(const std::byte* data) const;
  void release(void* data, uint64_t bytes, void* stream) override;
  // Frees the memory, and ends allocation. No launch is under way on any rank, and none uses
  // unreleased memory any more.
  void close();

 private:
  // A released range: `stream` may use it until the event `used` is complete.
  struct Released {
    uint64_t begin, end;
    DeviceEvent used;
  };

  const std::shared_ptr<Device> device_;
  void* const up_;
  DeviceWindow window_;
  OffsetAllocator free_;
  std::vector<Released> released_;
};

}  // namespace meron
