// SPDX-License-Identifier: Apache-2.0
// Room for whole values that lies in a window: at the same place on every rank of an axis, so that
// a library of collectives can have copy engines bring them there, which takes no multiprocessor
// from what computes (NCCL's zero-CTA policy).
//
// Nobody talks about places. Ranks that gather and release in one order find the same one, as the
// allocator's answers follow from the calls; each call's record has the place, so that a rank that
// released in another order is named.
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
  // What is taken is written on `up`.
  GatherWindow(std::shared_ptr<Device> device, void* up, DeviceWindow window);

  // Room that may be written on `up` from now on; nothing where none is free.
  Result<std::optional<DeviceMemory>> take(uint64_t bytes);
  // How far from the window's begin; nothing for what lies elsewhere.
  std::optional<uint64_t> place_of(const std::byte* data) const;
  void release(void* data, uint64_t bytes, void* stream) override;
  // The memory goes, and no more is taken. No launch is under way, and what was not released is
  // used no more, on any rank.
  void close();

 private:
  // A range that was released: `stream` may use it until `used` has come.
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
