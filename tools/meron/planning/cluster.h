// SPDX-License-Identifier: Apache-2.0
// A cluster as numbers: devices, links, memory. It has one rank per device; ranks of a node are
// consecutive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meron::planning {

inline constexpr size_t kMaxClusterText = size_t{1} << 20;  // bytes
inline constexpr uint32_t kMaxClusterDevices = 65'536;

struct LinkSpeed {
  double rate = 0;     // bytes per second, each way at the same time
  double latency = 0;  // seconds per message beside its bytes

  bool operator==(const LinkSpeed&) const = default;
};

// Two directions of a tier, in bytes per second.
struct TierSpeed {
  double read = 0;
  double write = 0;

  bool operator==(const TierSpeed&) const = default;
};

struct Cluster {
  std::string name;
  uint32_t nodes = 1;
  uint32_t devices_per_node = 1;
  LinkSpeed between;      // a node's link to the others, which its devices share; nodes > 1
  LinkSpeed inside;       // a device's link to the others of its node; devices_per_node > 1
  bool in_place = false;  // devices of a node read each other's parameters in place
  double memory = 0;      // of a device, bytes
  double reserved = 0;  // of it, for activations and everything else that is no state of the model
  double memory_rate = 0;  // of a device: reading and writing together, bytes per second
  double flops = 0;        // of a device, as achieved, not as advertised; 0: not given
  std::optional<TierSpeed> nvme = {};  // of a node
  std::optional<TierSpeed> pcie = {};  // of a device, from and to the host

  uint32_t devices() const { return nodes * devices_per_node; }
  bool operator==(const Cluster&) const = default;
};

// Strict: unknown and repeated keys, wrong units and missing keys are errors with line and key.
//
//   { "name": "32 nodes of 8",                                     may be left out
//     "nodes": 32, "devices_per_node": 8,
//     "between_nodes": { "rate": "400 Gb/s", "latency": "10 us" }, may be left out for one node
//     "inside_node": { "rate": "450 GB/s", "latency": "5 us",      ... for one device per node
//                      "in_place": false },                        may be left out
//     "device": { "memory": "80 GiB", "memory_rate": "3.35 TB/s",
//                 "reserved": "20 GiB", "flops": "400 TFLOP/s" },  both may be left out
//     "nvme": { "read": "20 GB/s", "write": "10 GB/s" },           may be left out
//     "pcie": { "read": "55 GB/s", "write": "55 GB/s" } }          may be left out
Result<Cluster> parse_cluster(std::string_view json);

// Text that parse_cluster() reads back to an equal cluster. indent < 0: one line.
std::string to_json(const Cluster& cluster, int indent = 2);

}  // namespace meron::planning
