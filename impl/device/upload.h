// SPDX-License-Identifier: Apache-2.0
// Copies to the device from memory of the host that is not pinned, in the order in which they were
// added: by the device's PinnedRing, piece by piece, as it has room; or, where nothing can be
// pinned, by the driver, which keeps the calling thread meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "device/device_side.h"
#include "os/thread_pool.h"

namespace meron {

class Upload {
 public:
  explicit Upload(DeviceSide& side) : side_(side) {}

  // Of memory that stays as it is until all was asked for, or drop().
  void add(std::byte* to, const std::byte* from, uint64_t bytes) {
    if (bytes > 0) copies_.push_back({to, from, bytes});
  }
  // Whether all were asked for: the host's memory is read no more.
  bool done() const { return copies_.empty(); }
  // Asks DeviceSide::up() for what there is room for. Never waits for the device where memory can
  // be pinned; whoever waits for this rank is woken when there is room again. After an error
  // nothing is left to be copied.
  Status advance(ThreadPool& threads);
  // What was not asked for is not copied.
  void drop() { copies_.clear(); }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    uint64_t bytes;
  };
  Status ask(ThreadPool& threads);
  Status ask(ThreadPool& threads, PinnedRing& ring);

  DeviceSide& side_;
  std::deque<Copy> copies_;
};

}  // namespace meron
