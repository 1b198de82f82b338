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
  // Values go up on the one, gradients come down on the other: both ways of the link at a time.
  void* up() const { return up_.get(); }
  void* down() const { return down_.get(); }
  // What lies on the device is written here, and summed and updated.
  void* work() const { return work_.get(); }

  // Wakes the threads of this rank that sleep when the stream, one of the above, has done what it
  // was asked so far. If none sleeps, the device's callback is enqueued by the first that does: to
  // enqueue one takes as long as a launch, and most work ends before a trainer waits.
  Status wake_after(void* stream);
  // The same at once, for a thread that is to have work as soon as there is.
  Status wake_right_after(void* stream);
  // Pins memory that is mapped as long as this lives, or until unpin(). Where that is refused
  // copies are slower; the first refusal is said, as *notice. Both take milliseconds per GiB, in a
  // Recess: no other thread may use the memory yet, or any more.
  void pin(std::byte* data, uint64_t bytes, std::string* notice);
  void unpin(std::byte* data);
  // For what goes up from memory that is not pinned: see Upload.
  PinnedRing& ring() { return ring_; }
  // Until nothing of the engine's is under way.
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
