// SPDX-License-Identifier: Apache-2.0
// A unit's full values on the device, from the first gather that requests them there to the release
// of the last one. They are copied once for all these gathers from the full values on the host; the
// host values must not change before the copies are done. If the device already holds the full
// values, gathers see them in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device_side.h"
#include "device/upload.h"

namespace meron {

class GatheredOnDevice {
 public:
  struct Piece {
    const std::byte* from = nullptr;
    uint64_t bytes = 0;
    bool pinned = true;
  };

  // `what`: "the gathered values of unit 'x'".
  explicit GatheredOnDevice(DeviceSide& side, std::string what)
      : side_(side), what_(std::move(what)), upload_(side) {}

  // Takes a lease, and queues the copies of pinned pieces unless they were queued before; advance()
  // queues the others. Adds the bytes of these copies to *copied. After an error there is no lease.
  Status lease(std::span<const Piece> pieces, uint64_t* copied);
  // Returns true once all copies are queued. After an error the device lacks the values, and every
  // lease must be released.
  Result<bool> advance(ThreadPool& threads);
  // The same for values that are on the device already: each piece at its address in `places`.
  Status lease_in_place(std::vector<std::byte*> places);
  // The same for values that work queued on DeviceSide::up() writes into `memory`, one block for
  // each piece. If they are leased already, `memory` only served peers, and is released after that
  // work.
  void lease_gathered(std::vector<DeviceMemory> memory);
  // Work queued on DeviceSide::up() so far writes values; lessees wait for it.
  Status note_gathered();
  // Work queued on DeviceSide::work() so far writes values; lessees wait for it.
  Status note_written();
  // One more lease of leased values.
  void lease() { ++leases_; }
  // Releases a lease. Work queued so far on the streams `users` may still use the values.
  Status unlease(std::span<void* const> users);
  bool leased() const { return leases_ > 0; }
  // Of a piece, while leased.
  std::byte* data(size_t piece) const { return places_[piece]; }

  // Copies into the caller's memory on the device, from the values on the host or on the device.
  // Call begin_copies() before the copies, and note_copies() once after all of them are queued.
  Status begin_copies();
  Status copy_out(std::byte* to, const std::byte* from, uint64_t bytes);
  // The same for params on the device, all at once: addresses are aligned to their element.
  Status copy_out(std::span<const meron_cast_task> params, DType type);
  Status note_copies();
  // Work queued on `stream` from now on waits for all queued copies.
  Status join(void* stream) const { return side_.device().wait(stream, copied_); }
  // True once the host's values are no longer read.
  Result<bool> settled() const {
    if (!upload_.done()) return false;
    return copied_.come();
  }

 private:
  // A stream that has used the memory, and its event when its last lease was released.
  struct User {
    void* stream;
    DeviceEvent left;
  };

  Status follow(void* user, void* stream);
  Status note_users(std::span<void* const> users);
  // Memory is reused only after the work queued on `users` and on the streams noted before.
  Status order_release(std::span<void* const> users);

  DeviceSide& side_;
  const std::string what_;
  std::vector<DeviceMemory> memory_;  // per piece; empty if unleased, or in place
  std::vector<std::byte*> places_;    // per piece, while leased
  Upload upload_;                     // of pieces that are not pinned, and
  std::optional<Error> failed_;       // how that has failed
  DeviceEvent copied_;                // the end of the last copies
  DeviceEvent used_;                  // kept to be recorded again
  std::vector<User> users_;           // of leases that were released before the last one
  uint32_t leases_ = 0;
};

}  // namespace meron
