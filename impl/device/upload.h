// SPDX-License-Identifier: Apache-2.0
// Copies to the device from host memory that is not pinned, in the order of add(): through the
// device's PinnedRing, piece by piece. If nothing can be pinned, the driver copies, and the calling
// thread waits.
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

  // `from` must not change until done(), or drop().
  void add(std::byte* to, const std::byte* from, uint64_t bytes) {
    if (bytes > 0) copies_.push_back({to, from, bytes});
  }
  // True once all copies are queued and the host's memory is no longer read.
  bool done() const { return copies_.empty(); }
  // Queues as many copies on DeviceSide::up() as there is room for. Never waits for the device if
  // memory can be pinned. When there is room again, a thread that waits for this rank is woken.
  // After an error no copy is left.
  Status advance(ThreadPool& threads);
  // Cancels the copies that are not queued.
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
