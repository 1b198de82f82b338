// SPDX-License-Identifier: Apache-2.0
// A few pieces of pinned memory of the host, used in turn, through which values go up that lie
// where nothing can be pinned: pages that come and go, as of tier nvme and of other nodes. Copying
// into pinned memory is the engine's, by all of its threads; a copy from other memory would be the
// driver's, by the calling one, which waits for it.
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
  // A GPU's link takes such a piece in less than 0.1 ms, which is worth a call of the driver's; and
  // all of them as long as a waiting thread takes to wake.
  static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  static constexpr size_t kPieces = 8;

  // Both outlive it. Pieces are made as they are needed.
  PinnedRing(Device& device, Arena& arena) : device_(device), arena_(arena) {}
  // Nothing that was sent may be under way.
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  // Whether there is any, or could be: not where nothing can be pinned.
  bool usable();
  // A piece that nobody uses, until it is sent or another one is taken; null: all are on their way.
  Result<std::byte*> take();
  // Copies `bytes` of the piece that was taken last to the device, on `stream`.
  Status send(std::byte* to, uint64_t bytes, void* stream);
  // Whether it is time to ask for a wake-up: half of the pieces were sent since the last time.
  // Whoever finds none free is woken by one of those that were asked for.
  bool half_sent();
  bool busy = false;  // with an upload, which releases the lock between its calls

 private:
  struct Piece {
    Buffer buffer;
    PinnedRange pinned;
    DeviceEvent sent;  // what was sent of it has come; nothing: none was
  };
  // One more; false: memory cannot be had, or not be pinned.
  bool grow();

  Device& device_;
  Arena& arena_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;  // to be taken: of all, the one that was sent first
  size_t sent_ = 0;  // since half_sent() said so
  bool refused_ = false;
};

}  // namespace meron
