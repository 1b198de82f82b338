// SPDX-License-Identifier: Apache-2.0
// The device that this rank computes on, with the engine's own streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "device/device.h"
#include "device/pinned_ring.h"
#include "transport/transport.h"

namespace meron {

class DeviceSide {
 public:
  static Result<std::unique_ptr<DeviceSide>> create(std::shared_ptr<Device> device,
                                                    Transport& transport);
  ~DeviceSide();
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  Device& device() const { return *device_; }
  // One stream uploads values, the other downloads gradients: the link is used in both directions.
  void* up() const { return up_.get(); }
  void* down() const { return down_.get(); }
  // Values and sums that reside on the device are written, reduced and updated on this stream.
  void* work() const { return work_.get(); }

  // Wakes this rank's sleeping threads when the stream, one of the above, has done the work queued
  // so far. If none sleeps, the first one that does enqueues the device's callback: enqueuing one
  // takes as long as a launch, and most work ends before a trainer waits.
  Status wake_after(void* stream);
  // The same, but enqueues the callback at once, for a thread that needs work soon.
  Status wake_right_after(void* stream);
  // Pins memory that is mapped as long as this lives, or until unpin(). If pinning fails, copies
  // are slower, and *notice reports the first failure. Both take milliseconds per GiB, in a Recess:
  // no other thread may use the memory then.
  void pin(std::byte* data, uint64_t bytes, std::string* notice);
  void unpin(std::byte* data);
  // For uploads from memory that is not pinned: see Upload.
  PinnedRing& ring() { return ring_; }
  // Waits for all work on the engine's streams.
  void synchronize();

 private:
  DeviceSide(std::shared_ptr<Device> device, Transport& transport, DeviceStream up,
             DeviceStream down, DeviceStream work)
      : device_(std::move(device)),
        transport_(transport),
        up_(std::move(up)),
        down_(std::move(down)),
        work_(std::move(work)),
        ring_(*device_, transport.arena()) {}

  const std::shared_ptr<Device> device_;
  Transport& transport_;
  void ask_to_be_woken();

  DeviceStream up_, down_, work_;
  std::atomic<bool> up_asked_{false}, down_asked_{false}, work_asked_{false};
  PinnedRing ring_;
  std::mutex pinned_mutex_;  // guards both; a leaf
  std::map<const std::byte*, PinnedRange> pinned_;
  bool told_unpinned_ = false;
};

}  // namespace meron
