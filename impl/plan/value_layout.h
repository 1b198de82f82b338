// SPDX-License-Identifier: Apache-2.0
// Which parameters lie on nvme or on the device, and how those on nvme lie there. Pure arithmetic,
// by which the engine allocates and the plan predicts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/layout.h"
#include "plan/plan.h"
#include "plan/unit_layout.h"

namespace meron {

// Whether a flat's values lie on the row's tier where those of its unit do, and that is not the
// host. Encoded ones stay in memory: they have a quarter of the bytes, or half.
constexpr bool stored_away(const Plan& plan, const FlatDesc& flat) {
  return plan.param.tier != Tier::host && (flat.trainable || !plan.frozen_int8);
}
// Whether second copies lie in the host's memory: those of values on the device lie there too.
constexpr bool copies_on_host(const Plan& plan) {
  return plan.second_copy && plan.param.tier == Tier::host;
}
// Values on the device that the host updates have their place in the host's memory too.
constexpr bool mirrored(const Plan& plan) {
  return plan.param.tier == Tier::device && plan.optimizer.tier != Tier::device;
}

// Bytes that a rank takes on the device for what it holds of a flat. Collectives bring equally many
// of every rank, in the order of ranks, also where the last ranks' rows or parts are shorter.
constexpr uint64_t device_value_bytes(const Plan& plan, uint64_t elements, uint64_t rank,
                                      const MeshShape& mesh, uint64_t size) {
  const uint64_t row = shard_elements(elements, mesh.shards);
  if (mesh.replicas == 1) return row * size;
  const uint64_t part = shard_elements(row_range(elements, rank, mesh).size(), mesh.replicas);
  return (over_all(plan.param, mesh) ? part : std::max(row, part * mesh.replicas)) * size;
}
// The same of its second copy, the whole row; none where there is nothing to copy.
constexpr uint64_t device_copy_bytes(const Plan& plan, uint64_t elements, uint64_t rank,
                                     const MeshShape& mesh, uint64_t size) {
  if (!plan.second_copy || mesh.replicas == 1) return 0;
  const uint64_t row = shard_elements(elements, mesh.shards);
  const uint64_t part = shard_elements(row_range(elements, rank, mesh).size(), mesh.replicas);
  return std::max(row, part * mesh.replicas) * size;
}
// The same of the f32 sums of its gradient.
constexpr uint64_t device_sum_bytes(const Plan& plan, uint64_t elements, uint64_t rank,
                                    const MeshShape& mesh) {
  const uint64_t held = held_range(plan.gradient, elements, rank, mesh).size();
  const bool shared = mesh.replicas > 1 && !over_all(plan.optimizer, mesh);
  return (shared ? std::max(held, shard_elements(held, mesh.replicas) * mesh.replicas) : held) *
         sizeof(float);
}
// The same of what encoding has lost of the sum of its row.
constexpr uint64_t device_feedback_bytes(const Plan& plan, uint64_t row, const MeshShape& mesh) {
  return mesh.replicas > 1 && plan.gradient.codec.feedback ? row * sizeof(float) : 0;
}
// How far the encoded parts of a row lie apart there, one of each replica. Where all begin at 16
// bytes, kernels are faster.
constexpr uint64_t device_encoded_stride(const Codec& codec, uint64_t row, const MeshShape& mesh,
                                         uint64_t size) {
  constexpr uint64_t kAligned = 16;
  return round_up(wire_bytes(codec, shard_elements(row, mesh.replicas), size), kAligned);
}
// Whether ranks send gradients to replicas as the trainer gave them: on devices that hold whole
// rows, where no sum of several micro-batches, which is in f32, is due.
constexpr bool sends_gradients(const Plan& plan, const MeshShape& mesh, bool first) {
  return plan.gradient.tier == Tier::device && plan.gradient.codec.kind == CodecKind::none &&
         mesh.shards == 1 && (plan.gradient.sharding == Sharding::world || first);
}

// What a rank has of a flat in its file: `rest`, which begins at the same place within a page as it
// does in memory, so that whole pages go to and fro without a copy.
constexpr uint64_t value_phase(const Range& rest, uint64_t size) {
  return rest.begin * size % kPage;
}
constexpr uint64_t value_file_bytes(const Range& rest, uint64_t size) {
  return rest.size() == 0 ? 0 : value_phase(rest, size) + rest.size() * size;
}

// The first units, in the order in which they are made, stay in memory while all that a rank holds
// of them has at most Plan::resident elements. The same on all ranks: asked with what the first
// one holds, which no other one exceeds.
class Residency {
 public:
  explicit Residency(const Plan& plan) : plan_(&plan), left_(plan.resident) {}

  // Whether the values of the next unit lie on the row's tier.
  bool store(const std::vector<FlatDesc>& flats, const MeshShape& mesh) {
    const uint64_t held = held_of(flats, mesh);
    if (held == 0) return false;
    if (held > left_) return true;
    left_ -= held;
    return false;
  }
  // A unit whose values stay in memory has gone.
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
