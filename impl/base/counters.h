// SPDX-License-Identifier: Apache-2.0
// What this rank has moved. Written under the context's lock or by its own operations only, read
// from any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace meron {

struct Counters {
  // To and from this rank's file on tier nvme.
  struct Nvme {
    std::atomic<uint64_t> read{0};
    std::atomic<uint64_t> written{0};
    std::atomic<uint64_t> held{0};  // of that file, in use now
  };
  // Between the host and this rank's device: values up, gradients down.
  struct Device {
    std::atomic<uint64_t> up{0};
    std::atomic<uint64_t> down{0};
    std::atomic<uint64_t> held{0};  // on the device at all times, by the plan
  };

  std::atomic<uint64_t> gather_mapped{0};  // bytes of peers made visible in place
  std::atomic<uint64_t> gather_copied{0};  // bytes of peers copied
  std::atomic<uint64_t> reduced{0};        // bytes of gradients read from peers
  // Of these, as on the wire, from ranks that share no memory with this one.
  std::atomic<uint64_t> inter_node_gather{0};
  std::atomic<uint64_t> inter_node_reduce{0};
  std::atomic<uint64_t> collective{0};  // bytes read from peers by broadcast and all-reduce
  Nvme nvme;
  Device device;
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> wait_ns{0};
};

inline void add(std::atomic<uint64_t>& counter, uint64_t value) {
  counter.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace meron
