// SPDX-License-Identifier: Apache-2.0
// Which parameters reside on nvme or on the device, and their layout on nvme. Pure arithmetic,
// by which the engine allocates and the plan predicts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/layout.h"
#include "plan/plan.h"
#include "plan/unit_layout.h"

namespace meron {

// True if a flat's values reside on the tier of the plan's param entry, other than the host, if its
// unit's do. Encoded values stay on the host: they have a quarter of the bytes, or half.
constexpr bool stored_away(const Plan& plan, const FlatDesc& flat) {
  return plan.param.tier != Tier::host && (flat.trainable || !plan.param.frozen_int8);
}
// True if secondary partitions (hpZ) are on the host. For values on the device they are there too.
constexpr bool secondary_on_host(const Plan& plan) {
  return plan.param.secondary_partition && plan.param.tier == Tier::host;
}
// True if values on the device have a copy on the host, because the host updates them.
constexpr bool mirrored(const Plan& plan) {
  return plan.param.tier == Tier::device && plan.optimizer.tier != Tier::device;
}

// Bytes on the device of a rank's shard or sub-shard of a flat. Collectives move equally many from
// every rank, in rank order, so shorter ones of the last ranks are padded.
constexpr uint64_t device_value_bytes(const Plan& plan, uint64_t elements, uint64_t rank,
                                      const MeshShape& mesh, uint64_t size) {
  const uint64_t shard = shard_elements(elements, mesh.shards);
  if (mesh.replicas == 1) return shard * size;
  const uint64_t sub_shard = shard_elements(row_range(elements, rank, mesh).size(), mesh.replicas);
  if (over_all(plan.param, mesh)) return sub_shard * size;
  return std::max(shard, sub_shard * mesh.replicas) * size;
}
// The same of its secondary partition (hpZ), which is the full shard; 0 if the plan has none.
constexpr uint64_t device_secondary_bytes(const Plan& plan, uint64_t elements, uint64_t rank,
                                          const MeshShape& mesh, uint64_t size) {
  if (!plan.param.secondary_partition || mesh.replicas == 1) return 0;
  const uint64_t shard = shard_elements(elements, mesh.shards);
  const uint64_t sub_shard = shard_elements(row_range(elements, rank, mesh).size(), mesh.replicas);
  return std::max(shard, sub_shard * mesh.replicas) * size;
}
// The same of the f32 sums of its gradient.
constexpr uint64_t device_sum_bytes(const Plan& plan, uint64_t elements, uint64_t rank,
                                    const MeshShape& mesh) {
  const uint64_t held = held_range(plan.gradient, elements, rank, mesh).size();
  const bool replicated = mesh.replicas > 1 && !over_all(plan.optimizer, mesh);
  return (replicated ? std::max(held, shard_elements(held, mesh.replicas) * mesh.replicas) : held) *
         sizeof(float);
}
// The same of the codec's feedback: what encoding the sums of its shard has lost.
constexpr uint64_t device_feedback_bytes(const Plan& plan, uint64_t shard, const MeshShape& mesh) {
  return mesh.replicas > 1 && plan.gradient.codec.feedback ? shard * sizeof(float) : 0;
}
// The distance on the device between the encoded sub-shards of a shard, one per replica. Kernels
// are faster if each begins at a multiple of 16 bytes.
constexpr uint64_t device_encoded_stride(const Codec& codec, uint64_t shard, const MeshShape& mesh,
                                         uint64_t size) {
  constexpr uint64_t kAligned = 16;
  return round_up(wire_bytes(codec, shard_elements(shard, mesh.replicas), size), kAligned);
}
// True if ranks send gradients to replicas in their own dtype instead of as f32 sums: on devices,
// if the shard axis has one rank and they are not summed over several micro-batches before.
constexpr bool sends_gradients(const Plan& plan, const MeshShape& mesh, bool first) {
  return plan.gradient.tier == Tier::device && plan.gradient.codec.kind == CodecKind::none &&
         mesh.shards == 1 && (plan.gradient.sharding == Sharding::world || first);
}

// A rank's slice `held` of a flat in its file begins at the same offset within a page as in memory,
// so that full pages are read and written without a copy.
constexpr uint64_t value_phase(const Range& held, uint64_t size) {
  return held.begin * size % kPage;
}
constexpr uint64_t value_file_bytes(const Range& held, uint64_t size) {
  return held.size() == 0 ? 0 : value_phase(held, size) + held.size() * size;
}

// Selects the units on nvme that stay in memory: the first ones, in order of creation, whose
// elements on one rank sum to at most `resident` of the plan's param entry. All ranks decide by the
// shards of rank 0, which are the largest, so they agree.
class Residency {
 public:
  explicit Residency(const Plan& plan) : plan_(&plan), left_(plan.param.resident) {}

  // Counts the next unit. True if its values reside on the tier of the plan's param entry.
  bool store(const std::vector<FlatDesc>& flats, const MeshShape& mesh) {
    const uint64_t held = held_of(flats, mesh);
    if (held == 0) return false;
    if (held > left_) return true;
    left_ -= held;
    return false;
  }
  // A unit whose values stayed in memory was destroyed.
  void forget(const std::vector<FlatDesc>& flats, const MeshShape& mesh) {
    left_ += held_of(flats, mesh);
  }

 private:
  uint64_t held_of(const std::vector<FlatDesc>& flats, const MeshShape& mesh) const {
    uint64_t held = 0;
    for (const FlatDesc& flat : flats) {
      if (!stored_away(*plan_, flat)) continue;
      held += held_range(plan_->param, flat.elements, 0, mesh).size();
    }
    return held;
  }

  const Plan* plan_;
  uint64_t left_;
};

}  // namespace meron
