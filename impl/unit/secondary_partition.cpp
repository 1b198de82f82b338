// SPDX-License-Identifier: Apache-2.0
// The secondary partition: what a node keeps of other nodes' shards between gathers, so that the
// next one stays within it (hpZ of ZeRO++, arXiv 2306.10209). Here these are `parts` of the rank's
// row, which belong to other replicas.
#include "unit/unit.h"

namespace meron {

Unit::Ranges Unit::parts_of(const Flat& flat) const {
  Ranges parts;
  if (!axes_.replicas() || !over_all(rank_.plan.param, axes_.mesh)) return parts;
  const uint64_t size = size_of(flat.desc.dtype);
  const Channel& replica = *axes_.replica;
  for (int i = 0; i < replica.size(); ++i) {
    if (replica.is_local(i) || replica.holder(i) != replica.index()) continue;
    const Range part =
        part_range(flat.desc.elements, static_cast<uint64_t>(axes_.of_replica(i)), axes_.mesh);
    parts.emplace_back(flat.window_offset + part.begin * size, part.size() * size);
  }
  return parts;
}

bool Unit::keeps_parts() const {
  return secondary_on_host(rank_.plan) || !over_all(rank_.plan.param, axes_.mesh);
}

bool Unit::drops_parts() const {
  return !secondary_on_host(rank_.plan) && over_all(rank_.plan.param, axes_.mesh);
}

bool Unit::has_parts() const {
  if (!stages_values() || !keeps_parts() || !is_sharded(rank_.plan.param)) return true;
  return arrivals.parts_here == arrivals.parts_asked &&
         (arrivals.exchanged == UnitArrivals::kNothing ||
          arrivals.parts_here == arrivals.exchanged);
}

Status Unit::hold_secondary() {
  for (Flat& flat : flats_) {
    if (flat.secondary_held) continue;
    MERON_TRY(hold(parts_of(flat), MemoryKind::param));
    flat.secondary_held = true;
  }
  return Ok{};
}

// Drops only values that have changed. Frozen values are staged once and stay. Values also stay if
// the next version is encoded as their difference.
void Unit::drop_secondary() {
  {
    const Busy busy(*this);
    for (Flat& flat : flats_) {
      if (!flat.secondary_held || flat.version != version_) continue;
      if (flat.coded() && flat.desc.trainable && encoding.codec.difference) continue;
      flat.secondary_held = false;
      give_back(parts_of(flat), MemoryKind::param);
    }
  }
  drop_staged();
}

}  // namespace meron
