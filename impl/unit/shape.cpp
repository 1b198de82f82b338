// SPDX-License-Identifier: Apache-2.0
#include "unit/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "plan/value_layout.h"

namespace meron {

UnitShape::UnitShape(Rank& rank, const Axes& axes, std::string name,
                     std::vector<std::shared_ptr<Param>> params)
    : rank_(rank),
      axes_(axes),
      name_(std::move(name)),
      name_hash_(hash_text(name_)),
      params_(std::move(params)) {}

void UnitShape::lay_out(const UnitLayout& layout) {
  const MeshShape& mesh = axes_.mesh;
  const Plan& plan = rank_.plan;
  stores_ = rank_.stores(axes_.number, layout.flats, mesh);
  const auto index = static_cast<uint64_t>(axes_.index());
  for (const FlatDesc& desc : layout.flats) {
    Flat& flat = flats_.emplace_back();
    flat.desc = desc;
    flat.row = row_range(desc.elements, index, mesh);
    flat.part = part_range(desc.elements, index, mesh);
    flat.rest = held_range(plan.param, desc.elements, index, mesh);
    flat.owned = held_range(plan.optimizer, desc.elements, index, mesh);
    flat.summed = !axes_.replicas()                           ? flat.owned
                  : plan.gradient.sharding == Sharding::world ? flat.part
                                                              : flat.row;
    flat.packed = plan.param.frozen_int8 && !desc.trainable;
    bytes_ += flat.value_bytes();
  }
  find_peers();
}

Result<std::pair<uint64_t, uint64_t>> UnitShape::reserve_slots() {
  const uint64_t bytes = sizeof(UnitSlot) * axes_.mesh.ranks();
  Transport& transport = rank_.transport;
  MERON_ASSIGN(const uint64_t slots,
               transport.window_allocate(bytes, fmt::format("unit '{}'", name_), axes_.number));
  MERON_TRY(transport.window().reserve(slots, bytes));
  slots_ = reinterpret_cast<UnitSlot*>(transport.window().writable(slots));
  return std::pair(slots, bytes);
}

void UnitShape::find_peers() {
  const Channel& group = *axes_.group;
  const bool whole = !is_sharded(rank_.plan.param);
  // The ranks that update the values determine the peers of a fetch of full values.
  const bool updated_over_all = over_all(rank_.plan.optimizer, axes_.mesh);
  const bool over_world = whole ? updated_over_all : over_all(rank_.plan.param, axes_.mesh);
  const bool refreshed = !over_world && updated_over_all;
  bool remote = false;
  for (int m = 0; m < group.size(); ++m) {
    const auto shards = static_cast<int>(axes_.mesh.shards);
    const bool on_shard = m / shards == axes_.own_replica();
    const bool on_replica = m % shards == axes_.own_shard();
    const bool seen = over_world || on_shard;
    if (!group.is_local(m)) {
      remote = remote || seen || (on_replica && refreshed);
      continue;
    }
    if (seen) local_peers_.push_back(m);
    if (seen || (on_replica && refreshed)) readers_.push_back(m);
    if (on_shard) local_shards_.push_back(m);
    if (on_replica) local_replicas_.push_back(m);
  }
  const bool packed =
      std::any_of(flats_.begin(), flats_.end(), [](const Flat& flat) { return flat.packed; });
  stages_values_ = remote || packed || stores_ || (!whole && refreshed);
}

std::vector<int> UnitShape::places(const Channel& channel, const std::vector<int>& members) const {
  std::vector<int> found;
  for (const int m : members) {
    const int rank = axes_.group->members().world_rank(m);
    for (int place = 0; place < channel.size(); ++place) {
      if (channel.members().world_rank(place) == rank) found.push_back(place);
    }
  }
  return found;
}

bool UnitShape::may_widen() const {
  return std::any_of(flats_.begin(), flats_.end(), [&](const Flat& flat) {
    return flat.desc.trainable && widens(rank_.plan, flat.desc.dtype);
  });
}

bool UnitShape::trainable() const {
  return std::any_of(flats_.begin(), flats_.end(),
                     [](const Flat& flat) { return flat.desc.trainable; });
}

size_t index_in_unit(const UnitShape& unit, const Param& param) {
  const auto& params = unit.params();
  const auto found = std::find_if(params.begin(), params.end(),
                                  [&](const auto& each) { return each.get() == &param; });
  return static_cast<size_t>(found - params.begin());
}

Range part_of(const Param& param, const Range& range) {
  const uint64_t begin = std::max(range.begin, param.place.offset);
  const uint64_t end = std::min(range.end, param.place.offset + param.count);
  if (begin >= end) return {0, 0};
  return {begin - param.place.offset, end - param.place.offset};
}

}  // namespace meron
