// SPDX-License-Identifier: Apache-2.0
// A few blocks of pinned host memory, used in turn, for uploads from memory that cannot be pinned:
// pages of tier nvme and of remote values are mapped and unmapped. All threads of the engine copy
// into the pinned blocks. Otherwise the driver would copy, on the calling thread, which waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "memory/arena.h"

namespace meron {

class PinnedRing {
 public:
  // A GPU's link takes less than 0.1 ms for a block of this size, which is worth a call of the
  // driver. All blocks together take as long as a waiting thread takes to wake.
  static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  static constexpr size_t kPieces = 8;

  // Both outlive it. Pieces are made as they are needed.
  PinnedRing(Device& device, Arena& arena) : device_(device), arena_(arena) {}
  // All sends are complete.
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  // False if no memory can be pinned.
  bool usable();
  // A free piece, until send() or the next take(); null if all are under way.
  Result<std::byte*> take();
  // Copies `bytes` of the piece that was taken last to the device, on `stream`.
  Status send(std::byte* to, uint64_t bytes, void* stream);
  // True when half of the pieces were sent since the last time: then the caller requests a wake-up.
  // One of these wakes a thread that finds no free piece.
  bool half_sent();
  bool busy = false;  // with an upload, which releases the lock between its calls

 private:
  struct Piece {
    Buffer buffer;
    PinnedRange pinned;
    DeviceEvent sent;  // the end of its last send; empty if there was none
  };
  // One more; false: memory cannot be had, or not be pinned.
  bool grow();

  Device& device_;
  Arena& arena_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;  // to be taken: of all, the one that was sent first
  size_t sent_ = 0;  // since half_sent() returned true
  bool refused_ = false;
};

}  // namespace meron
