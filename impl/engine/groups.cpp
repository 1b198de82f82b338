// SPDX-License-Identifier: Apache-2.0
// Groups and the axes of their meshes: one channel each, laid out alike on every rank.
#include <fmt/format.h>

#include <algorithm>

#include "engine/context.h"

namespace meron {

Result<MeshShape> Context::shape_of(const Members& members) const {
  const int node = ranks_per_node(members);
  if (options_.plan.mesh.shard != Mesh::kAll && (node == 0 || members.size() % node != 0)) {
    std::string sizes;
    int count = 0;
    for (int m = 0; m < members.size(); ++m) {
      ++count;
      const bool last = m + 1 == members.size() || transport_->node(members.world_rank(m)) !=
                                                       transport_->node(members.world_rank(m + 1));
      if (!last) continue;
      sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", count);
      count = 0;
    }
    return Error(MERON_E_UNSUPPORTED,
                 fmt::format("plan '{}' has a mesh, but the ranks in order lie {} to a node",
                             options_.plan.name, sizes),
                 "start equally many ranks on every node, those of a node one after the other, or "
                 "use a plan without a mesh")
        .on("plan");
  }
  return mesh_shape(options_.plan, static_cast<uint32_t>(members.size()),
                    static_cast<uint32_t>(node));
}

int Context::ranks_per_node(const Members& members) const {
  const auto node = [&](int m) { return transport_->node(members.world_rank(m)); };
  int size = 1;
  while (size < members.size() && node(size) == node(0)) ++size;
  std::vector<int> seen;
  for (int first = 0; first < members.size(); first += size) {
    if (std::find(seen.begin(), seen.end(), node(first)) != seen.end()) return 0;
    seen.push_back(node(first));
    for (int m = first; m < std::min(first + size, members.size()); ++m) {
      if (node(m) != node(first)) return 0;
    }
  }
  return size;
}

Result<uint64_t> Context::reserve_group(int members) {
  const uint64_t bytes = group_bytes(static_cast<uint64_t>(members));
  MERON_ASSIGN(const uint64_t offset, transport_->window_allocate(bytes, "the group's control"));
  const auto reserve = [&] {
    const Recess recess;  // the call has the turn
    return transport_->window().reserve(offset, bytes);
  };
  MERON_TRY(reserve());
  control_bytes_ += bytes;
  return offset;
}

Result<Channel*> Context::make_group(Members members) {
  const auto number = static_cast<uint32_t>(groups_.size()) * 3;
  const bool member = members.index() != MERON_RANK_NONE;
  transport_->open_region(static_cast<uint32_t>(groups_.size()));
  Group group;
  auto shape = shape_of(members);
  MERON_ASSIGN(const uint64_t control, reserve_group(members.size()));
  const auto channel_of = [&](Members of, uint64_t offset, uint32_t axis, Channel* parent) {
    return std::make_unique<Channel>(*transport_, rank_->counters, std::move(of), offset,
                                     number + axis, parent);
  };
  if (member) group.channel = channel_of(members, control, 0, nullptr);
  if (!shape.ok()) {
    group.no_mesh = std::move(shape).error();
  } else {
    group.axes = {.mesh = *shape,
                  .group = group.channel.get(),
                  .shard = group.channel.get(),
                  .number = static_cast<uint32_t>(groups_.size())};
  }
  // One control block per axis of the mesh, in the same order on every rank.
  const int shards = shape.ok() ? static_cast<int>(shape->shards) : 1;
  const int replicas = shape.ok() ? static_cast<int>(shape->replicas) : 1;
  const auto make_axis = [&](int count, int size, int own, uint32_t axis,
                             auto rank_of) -> Result<std::unique_ptr<Channel>> {
    std::unique_ptr<Channel> made;
    for (int k = 0; k < count; ++k) {
      MERON_ASSIGN(const uint64_t offset,
                   transport_->window_allocate(group_bytes(static_cast<uint64_t>(size)),
                                               "the control of an axis"));
      if (!member || k != own) continue;
      const auto reserve = [&] {
        const Recess recess;  // the call has the turn
        return transport_->window().reserve(offset, group_bytes(static_cast<uint64_t>(size)));
      };
      MERON_TRY(reserve());
      control_bytes_ += group_bytes(static_cast<uint64_t>(size));
      std::vector<int> ranks;
      for (int place = 0; place < size; ++place) ranks.push_back(rank_of(k, place));
      MERON_ASSIGN(Members of, Members::of(ranks, transport_->world_size(), transport_->rank()));
      made = channel_of(std::move(of), offset, axis, group.channel.get());
    }
    return made;
  };
  if (replicas > 1) {
    MERON_ASSIGN(group.shard,
                 make_axis(replicas, shards, member ? members.index() / shards : -1, 1,
                           [&](int i, int j) { return members.world_rank(i * shards + j); }));
    MERON_ASSIGN(group.replica,
                 make_axis(shards, replicas, member ? members.index() % shards : -1, 2,
                           [&](int j, int i) { return members.world_rank(i * shards + j); }));
    group.axes.shard = group.shard.get();
    group.axes.replica = group.replica.get();
  }
  groups_.push_back(std::move(group));
  return groups_.back().channel.get();
}

Result<const Axes*> Context::axes_of(const Channel& channel) const {
  for (const Group& group : groups_) {
    if (group.channel.get() != &channel) continue;
    if (group.no_mesh) return *group.no_mesh;
    return &group.axes;
  }
  return Error(MERON_E_INTERNAL, "a channel without a group",
               "please report this defect with the flight record");
}

}  // namespace meron
