// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "plan/plan.h"

namespace meron {

Result<MeshShape> mesh_shape(const Plan& plan, uint32_t ranks, uint32_t node_ranks) {
  if (plan.mesh.shard == Mesh::kAll) return MeshShape{.shards = ranks};
  const bool by_node = plan.mesh.shard == Mesh::kNode;
  node_ranks = std::min(node_ranks, ranks);
  if (by_node && node_ranks == 0) {
    return Error(MERON_E_UNSUPPORTED,
                 fmt::format("plan '{}' has a mesh by nodes, whose numbers of ranks differ",
                             plan.name),
                 "start equally many ranks on every node, or give the shard axis as a number")
        .on("plan");
  }
  const uint32_t shards = by_node ? node_ranks : plan.mesh.shard;
  if (ranks % shards != 0) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("plan '{}' has a shard axis of {} ranks, which does not divide the {} "
                             "ranks of the group",
                             plan.name, shards, ranks),
                 "give a size that divides the number of ranks")
        .on("plan");
  }
  // Ranks of a node share memory, so an axis must not straddle nodes.
  if (node_ranks > 1 && shards % node_ranks != 0 && node_ranks % shards != 0) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("plan '{}' has a shard axis of {} ranks, and a node has {}", plan.name,
                             shards, node_ranks),
                 "give a size that divides, or is a multiple of, the ranks of a node")
        .on("plan");
  }
  if (node_ranks > 1 && ranks % node_ranks != 0) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("plan '{}' has a mesh of {} ranks, which do not fill nodes of {}",
                             plan.name, ranks, node_ranks),
                 "start equally many ranks on every node")
        .on("plan");
  }
  return MeshShape{.shards = shards, .replicas = ranks / shards};
}

}  // namespace meron
