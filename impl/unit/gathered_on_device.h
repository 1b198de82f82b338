// SPDX-License-Identifier: Apache-2.0
// A unit's whole values in memory of the device: from the first gather that wants them there until
// the last one that has them is released. They are copied once for all of these, from the whole
// values on the host, which nobody may change before the copies are done; or they lie on the device
// whole already, and gathers see them in place.
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

  // Takes a lease, and asks for the copies of pinned pieces unless they are there or on their way;
  // advance() asks for those of the others. Bytes that are to be copied because of it are added to
  // *copied. After an error there is no lease.
  Status lease(std::span<const Piece> pieces, uint64_t* copied);
  // Whether all copies of what is leased were asked for. After an error the values are not there,
  // and every lease must go.
  Result<bool> advance(ThreadPool& threads);
  // The same of values that lie on the device, each piece where `places` says.
  Status lease_in_place(std::vector<std::byte*> places);
  // The same of values that DeviceSide::up() has been asked to write into `memory`, one of each
  // piece. Where they are leased already these were the others' to send: the memory goes back
  // behind that.
  void lease_gathered(std::vector<DeviceMemory> memory);
  // What was asked of DeviceSide::up() so far has written values: who leases them waits for it.
  Status note_gathered();
  // What was asked of DeviceSide::work() so far has written such values: who leases them waits for
  // it.
  Status note_written();
  // One more, of values that are leased.
  void lease() { ++leases_; }
  // What was asked of `users`, streams, until now may still use them.
  Status unlease(std::span<void* const> users);
  bool leased() const { return leases_ > 0; }
  // Of a piece, while leased.
  std::byte* data(size_t piece) const { return places_[piece]; }

  // Copies into the caller's memory of the device, from the host's values or from those that lie on
  // the device: begin_copies() comes first, and note_copies() then says of all of them that they
  // were asked for.
  Status begin_copies();
  Status copy_out(std::byte* to, const std::byte* from, uint64_t bytes);
  // The same of params that lie on the device, all at once: places are aligned to their element.
  Status copy_out(std::span<const meron_cast_task> params, DType type);
  Status note_copies();
  // What is asked of `stream` from now on waits for all copies that were asked for.
  Status join(void* stream) const { return side_.device().wait(stream, copied_); }
  // Whether the host's values are not read any more.
  Result<bool> settled() const {
    if (!upload_.done()) return false;
    return copied_.come();
  }

 private:
  // A stream that has used the memory, and how far it was when its last lease was released.
  struct User {
    void* stream;
    DeviceEvent left;
  };

  Status follow(void* user, void* stream);
  Status note_users(std::span<void* const> users);
  // The memory is used again after all that was asked of `users`, and of those noted before.
  Status order_release(std::span<void* const> users);

  DeviceSide& side_;
  const std::string what_;
  std::vector<DeviceMemory> memory_;  // per piece; empty where nobody has a lease, or in place
  std::vector<std::byte*> places_;    // per piece, while leased
  Upload upload_;                     // of pieces that are not pinned, and
  std::optional<Error> failed_;       // how that has failed
  DeviceEvent copied_;                // the end of the last copies
  DeviceEvent used_;                  // kept to be recorded again
  std::vector<User> users_;           // of leases that were released before the last one
  uint32_t leases_ = 0;
};

}  // namespace meron
