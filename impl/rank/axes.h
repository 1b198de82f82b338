// SPDX-License-Identifier: Apache-2.0
// A group's mesh on this rank: who its peers are along each axis.
#pragma once

#include "base/layout.h"
#include "call_log/channel.h"

namespace meron {

class DeviceGroup;

// Member i * shards + j of the group is member j of the shard axis of replica i, and member i of
// the replica axis of place j. Without replicas the shard axis is the group.
struct Axes {
  MeshShape mesh;
  Channel* group = nullptr;
  Channel* shard = nullptr;
  Channel* replica = nullptr;  // null without replicas
  uint32_t number = 0;         // of the group
  // What joins the devices of the group's ranks; null: a rank alone, or the host does.
  DeviceGroup* devices = nullptr;

  bool replicas() const { return replica != nullptr; }
  int index() const { return group->index(); }
  int own_shard() const { return static_cast<int>(static_cast<uint64_t>(index()) % mesh.shards); }
  int own_replica() const { return static_cast<int>(static_cast<uint64_t>(index()) / mesh.shards); }
  // Members of the group, by their place on this rank's axes.
  int of_shard(int j) const { return own_replica() * static_cast<int>(mesh.shards) + j; }
  int of_replica(int i) const { return i * static_cast<int>(mesh.shards) + own_shard(); }
};

}  // namespace meron
