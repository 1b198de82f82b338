// SPDX-License-Identifier: Apache-2.0
// Joins the devices of a group's ranks: values on devices are gathered, and gradients reduced,
// without a copy on the host.
//
// Each axis has two communicators, one for values and one for gradients. They run one after another
// on the device, in the order of the group's calls, which is the same on every rank. Otherwise
// kernels of two communicators could each wait for resources that the other one holds.
//
// The caller has the rank's turn, so launches follow the order of calls. The lock is released while
// the library launches: its first calls connect devices, and may wait for peers.
//
// The host does not wait. The group keeps each launch until it is done, together with its call.
// DeviceWatch checks launches, and aborts those that a peer will never join.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "call_log/channel.h"
#include "collective/operation.h"
#include "device/collectives.h"
#include "device/device_side.h"
#include "device/gather_window.h"

namespace meron {

// Breaks the channel because a communicator of its ranks has failed in `sequence`. The library
// knows ranks by their index on an axis. The engine names the one that died or left.
Error fail_devices(Channel& channel, const Error& error, uint64_t sequence);

// A launch of a communicator, until the device has done it.
class DeviceLaunch final : public Operation {
 public:
  DeviceLaunch(Channel& channel, Deadline deadline, uint64_t sequence,
               std::shared_ptr<DeviceCommunicator> communicator, DeviceEvent done, std::string what)
      : Operation(channel, deadline),
        communicator_(std::move(communicator)),
        done_(std::move(done)),
        what_(std::move(what)),
        begun_ns_(now_ns()) {
    set_sequence(sequence);
  }
  Result<bool> advance() override;
  std::vector<int> missing() const override { return channel_.not_begun(sequence()); }
  std::string describe() const override { return what_; }

  Result<bool> come() const { return done_.come(); }
  int64_t begun_ns() const { return begun_ns_; }
  DeviceEvent take_event() { return std::move(done_); }

 private:
  std::shared_ptr<DeviceCommunicator> communicator_;
  DeviceEvent done_;
  std::string what_;
  int64_t begun_ns_;
};

enum class DeviceAxis : size_t { shard = 0, replica = 1 };
inline constexpr size_t kDeviceAxes = 2;

class DeviceGroup {
 public:
  using Communicator = std::shared_ptr<DeviceCommunicator>;
  // Of the ranks of an axis, in their order; both null where it has one rank.
  struct Pair {
    Communicator gathers, sums;
  };
  using Pairs = std::array<Pair, kDeviceAxes>;
  // All are ready. Calls are posted to `channel`, the group's.
  DeviceGroup(DeviceSide& side, Channel& channel, Pairs pairs)
      : side_(side), channel_(channel), pairs_(std::move(pairs)) {}

  Channel& channel() const { return channel_; }
  bool has(DeviceAxis axis) const { return pair(axis).gathers != nullptr; }

  struct Part {
    const std::byte* from = nullptr;  // this rank's
    std::byte* to = nullptr;          // everybody's, in the order of ranks
    uint64_t bytes = 0;               // of each rank
  };
  // The call that a launch is part of, for DeviceWatch.
  struct Call {
    uint64_t sequence = 0;
    Deadline deadline;
    std::string what;
  };
  // Values: on DeviceSide::up(), in one launch.
  Status all_gather(DeviceAxis axis, std::span<const Part> parts, Call call);
  // Gradients, and sums of them: on DeviceSide::work().
  Status exchange(DeviceAxis axis, std::span<const meron_exchange_piece> pieces, Call call);
  Status share_sums(DeviceAxis axis, std::span<const Part> parts, Call call);

  // If true, memory that values are gathered from is registered with the library, on all ranks. The
  // library then needs no copy of its own if the memory of the peer is registered too.
  void set_registers(bool on) { registers_ = on; }
  // Registers memory until the result is destroyed. After an error this rank must not continue, as
  // the others may have succeeded.
  Result<std::vector<DeviceRegistration>> register_values(std::byte* data, uint64_t bytes) const;

  // Gathers full values of the shard axis into the window from now on, if it has room; all ranks.
  void gather_within(std::shared_ptr<GatherWindow> window) { window_ = std::move(window); }
  GatherWindow* window() const { return window_.get(); }

  // The oldest launch that is not done; null: there is none.
  std::shared_ptr<DeviceLaunch> oldest();
  // The error of a later failure, if any.
  Status status() const;
  // True if the completed launches of a call are valid: a stream also completes launches that this
  // rank or a peer aborted. False: not all peers are known to have made the same call yet.
  Result<bool> check(uint64_t sequence);
  // The communicators for DeviceCommunicator::abort. After the abort, streams no longer wait for
  // peers, and the launches' results are undefined. Empty at the second call.
  std::vector<Communicator> take_for_abort();
  // Closes the communicators. All launches are complete, or were aborted.
  void close();

 private:
  const Pair& pair(DeviceAxis axis) const { return pairs_[static_cast<size_t>(axis)]; }
  Status gather_by(const Communicator& communicator, std::span<const Part> parts, void* stream,
                   Call call);
  Status take_turn(void* stream);
  Status note(const Communicator& communicator, void* stream, Call call);

  DeviceSide& side_;
  Channel& channel_;
  const Pairs pairs_;
  std::deque<std::shared_ptr<DeviceLaunch>> launches_;  // in the order of their calls
  std::vector<DeviceEvent> events_;                     // for reuse
  DeviceEvent turn_;                                    // the end of the last launch
  void* turn_stream_ = nullptr;
  bool aborted_ = false;
  bool registers_ = false;
  std::shared_ptr<GatherWindow> window_;  // shared with what was taken from it
};

}  // namespace meron
