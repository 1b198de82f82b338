// SPDX-License-Identifier: Apache-2.0
// Values on tier device. They reside in memory of the device that this rank computes on. Gathers on
// the device read them in place; all other uses copy them to the host's memory.
//
// A stream other than DeviceSide::work() that reads or writes them waits for work(), and work()
// waits for it (GatheredOnDevice).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/collectives.h"
#include "rank/rank.h"
#include "shard/shard.h"

namespace meron {

class ShardOnDevice final : public Shard {
 public:
  // Allocates `room` bytes of the device for values of `bytes` bytes. Copies on the host are at
  // `host`. `mirrored`: that memory stays, and is pinned. Values are zero until they are first
  // stored. MERON_E_NO_MEMORY, MERON_E_DEVICE.
  static Result<std::unique_ptr<ShardOnDevice>> create(Rank& rank, std::byte* host, uint64_t bytes,
                                                       uint64_t room, bool mirrored,
                                                       const std::string& name);
  ~ShardOnDevice() override;

  Result<bool> stage() override;
  Result<bool> open(bool whole) override;
  void store() override;
  void give_back() override {}
  void forget() override;
  Status read(uint64_t offset, uint64_t bytes, std::byte* out) override;
  bool busy() const override;
  void wait(int64_t timeout_ns) const override;
  std::string describe() const override;

  // Of the collectives that send from here, as long as this lives.
  void keep(std::vector<DeviceRegistration> registrations) {
    std::move(registrations.begin(), registrations.end(), std::back_inserter(registrations_));
  }
  // Takes `room` bytes more, if any, for the secondary partition of these values. The gather of the
  // values writes it, on DeviceSide::up(). MERON_E_NO_MEMORY.
  Status hold_secondary(uint64_t room, const std::string& name);
  std::byte* secondary() const { return secondary_.data(); }  // null: there is none
  uint64_t secondary_room() const { return secondary_room_; }
  // The version of the values that it was last asked to have: the same on all ranks.
  std::optional<uint64_t> secondary_version;
  // The device's have changed by themselves: the host's memory does not have them any more.
  void note_changed() { here_ = false; }

  bool mirrored() const { return mirrored_; }
  std::byte* data() const { return memory_.data(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t room() const { return room_; }  // of the device, from data() on; may be 0

 private:
  ShardOnDevice(Rank& rank, std::byte* host, uint64_t bytes, bool mirrored)
      : rank_(rank), host_(host), bytes_(bytes), mirrored_(mirrored) {}
  Status transfer(void* to, const void* from, std::atomic<uint64_t>& counter);
  Status settle();

  Rank& rank_;
  std::byte* const host_;
  const uint64_t bytes_;
  const bool mirrored_;
  DeviceMemory memory_, secondary_;
  uint64_t room_ = 0, secondary_room_ = 0;         // as requested
  std::vector<DeviceRegistration> registrations_;  // destroyed before the memory
  DeviceEvent copied_;
  bool reading_ = false, writing_ = false;  // what copied_ is the end of
  bool here_ = false;                       // the host's memory has them
  bool stored_ = false;                     // they were written, here or there
  bool opened_ = false;                     // and they may have changed there
  std::optional<Error> error_;
};

}  // namespace meron
