// SPDX-License-Identifier: Apache-2.0
// Values that come together on the host: parts and rows of other nodes, what this rank has packed
// or elsewhere, and copies of the peers' where every rank holds all.
#include <algorithm>

#include "values/gather.h"
#include "values/parallel_copy.h"

namespace meron {

// Every rank sends at every gather: whether a peer still has the values is the peer's own business.
Status GatherOperation::begin_parts(Item& item) {
  Unit& unit = *item.unit;
  const Unit::Busy busy(unit);  // memory is taken, for which the lock is released
  const Axes& axes = unit.axes();
  MERON_TRY(unit.hold_staged());
  item.stage = Stage::parts;
  item.leads_parts = unit.arrivals.parts_asked != item.version;
  unit.arrivals.parts_asked = item.version;
  if (!item.between || axes.replica->link() == nullptr) return Ok{};
  MERON_ASSIGN(item.parts, Import::begin(unit, Import::Kind::parts, *axes.replica,
                                         channel_.tag(sequence(), 0), !item.leads_parts));
  return Ok{};
}

Status GatherOperation::begin_rows(Item& item) {
  Unit& unit = *item.unit;
  const Unit::Busy busy(unit);
  const Axes& axes = unit.axes();
  item.stage = Stage::rows;
  item.leads_rows = unit.arrivals.rows_asked != item.version;
  unit.arrivals.rows_asked = item.version;
  if (axes.shard->link() == nullptr) return Ok{};
  MERON_ASSIGN(item.rows, Import::begin(unit, Import::Kind::rows, *axes.shard,
                                        channel_.tag(sequence(), 1), !item.leads_rows));
  return Ok{};
}

// True once the import is complete, and all ranks are known to have made the same call.
Result<bool> GatherOperation::arrived(const std::shared_ptr<Import>& import) {
  if (channel_.link() != nullptr) {
    MERON_ASSIGN(const bool agreed, channel_.agreed(sequence()));
    if (!agreed) return false;
  }
  return import == nullptr || import->done();
}

bool GatherOperation::in_turn(const Item& item) const {
  if (channel_.link() == nullptr) return true;
  return std::none_of(items_.data(), &item, [&](const Item& before) {
    return before.unit->stages_values() && before.stage <= item.stage;
  });
}

Result<bool> GatherOperation::staged_own(Unit& unit) {
  Result<bool> own = unit.stage_own();
  if (!own.ok()) return channel_.fail(std::move(own).error());
  return own;
}

Result<bool> GatherOperation::advance_staged(Item& item) {
  Unit& unit = *item.unit;
  if (item.stage == Stage::begun) {
    // Values are sent from memory, except those that are sent as they are encoded.
    if (unit.stores()) {
      MERON_ASSIGN(const bool own, staged_own(unit));
      if (!own) return false;
    }
    if (!in_turn(item)) return false;
    if (Status begun = begin_parts(item); !begun.ok()) return channel_.fail(begun.error());
  }
  // Without replicas rows are whole already, and need not wait for anyone to be sent.
  if (item.stage == Stage::parts && !unit.axes().replicas()) {
    unit.arrivals.parts_here = item.version;
    MERON_ASSIGN(const bool own, staged_own(unit));
    if (!own || !in_turn(item)) return false;
    if (Status begun = begin_rows(item); !begun.ok()) return channel_.fail(begun.error());
  }
  if (item.stage == Stage::parts) {
    if (!unit.reached(unit.readers(), item.version, &UnitSlot::published)) return false;
    MERON_ASSIGN(const bool here, arrived(item.parts));
    if (!here) return false;
    MERON_ASSIGN(const bool own, staged_own(unit));
    if (!own) return false;
    if (item.parts) item.parts->unpack();
    if (item.leads_parts) {
      if (item.between) refresh(unit);
      unit.arrivals.parts_here = item.version;
    }
    if (unit.arrivals.parts_here != item.version || !in_turn(item)) return false;
    if (Status begun = begin_rows(item); !begun.ok()) return channel_.fail(begun.error());
  }
  if (item.stage == Stage::rows) {
    if (!unit.reached(unit.readers(), item.version, &UnitSlot::published)) return false;
    MERON_ASSIGN(const bool here, arrived(item.rows));
    if (!here) return false;
    if (item.rows) item.rows->unpack();
    if (item.leads_rows) unit.arrivals.rows_here = item.version;
    if (unit.arrivals.rows_here != item.version) return false;
    unit.own_slot().arrived.store(item.number, std::memory_order_seq_cst);
    channel_.transport().ring();
    item.stage = Stage::local_peers;
  }
  if (!unit.reached(unit.local_peers(), item.number, &UnitSlot::arrived)) return false;
  if (mode_ == GatherMode::view && unit.state() != ValueState::available) {
    const Unit::Staged staged = unit.staged();
    uint64_t mapped = 0;
    for (const Flat& flat : unit.flats()) {
      mapped += (flat.desc.elements - flat.rest.size()) * size_of(flat.desc.dtype);
    }
    for (const auto& [offset, bytes] : staged.parts) mapped -= bytes;
    for (const auto& [offset, bytes] : staged.rows) mapped -= bytes;
    add(unit.rank().counters.gather_mapped, mapped);
  }
  return true;
}

void GatherOperation::refresh(Unit& unit) {
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  if (over_all(rank.plan.param, axes.mesh)) return;
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (flat.fetched == flat.version) continue;
    const Unit::Busy busy(unit);
    flat.fetched = flat.version;
    const uint64_t size = size_of(flat.desc.dtype);
    for (const int m : unit.local_replicas()) {
      if (m == axes.index()) continue;
      const Range part = part_range(flat.desc.elements, static_cast<uint64_t>(m), axes.mesh);
      std::byte* const to = flat.writable + part.begin * size;
      add(rank.counters.gather_copied, part.size() * size);
      if (flat.coded()) {
        const uint64_t offset = unit.slot(m).offsets.encoded[f].load(std::memory_order_relaxed);
        const Wire wire(unit.codec_of(flat), rank.threads);
        wire.decode(to, flat.desc.dtype, unit.channel().memory(m, offset), part.size(), true,
                    flat.difference);
        continue;
      }
      // The peer's replica has its own copy of the row, at the same offset as this rank's.
      const uint64_t stride = round_up(flat.value_bytes(), kPage);
      const uint64_t first =
          flat.window_offset - stride * static_cast<uint64_t>(axes.own_replica());
      const uint64_t place =
          first + stride * (static_cast<uint64_t>(m) / axes.mesh.shards) + part.begin * size;
      parallel_copy(rank, to, rank.transport.window().readable(place), part.size() * size);
    }
  }
}

Result<bool> GatherOperation::advance_replicated(Item& item) {
  Unit& unit = *item.unit;
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  // A replicated optimizer writes everything on every rank: there is nothing to fetch.
  const bool fetches = is_sharded(rank.plan.optimizer);
  Channel& axis = over_all(rank.plan.optimizer, axes.mesh) ? *axes.group : *axes.shard;
  if (item.stage == Stage::begun) {
    item.stage = Stage::parts;
    if (fetches && axis.link() != nullptr) {
      const Unit::Busy busy(unit);
      auto begun =
          Import::begin(unit, Import::Kind::whole, axis, channel_.tag(sequence(), 0), false);
      if (!begun.ok()) return channel_.fail(begun.error());
      item.parts = std::move(*begun);
    }
  }
  if (item.stage == Stage::parts) {
    if (!unit.reached(unit.local_peers(), item.version, &UnitSlot::published)) return false;
    MERON_ASSIGN(const bool here, arrived(item.parts));
    if (!here || (unit.exchanging() && axis.link() != nullptr)) return false;
    if (item.parts) item.parts->unpack();
    unit.own_slot().arrived.store(item.number, std::memory_order_seq_cst);
    if (axis.link() != nullptr) channel_.transport().ring();
    item.stage = Stage::local_peers;
  }
  if (axis.link() != nullptr &&
      !unit.reached(unit.local_peers(), item.number, &UnitSlot::arrived)) {
    return false;
  }
  if (fetches) copy_from_holders(unit);
  return true;
}

void GatherOperation::copy_from_holders(Unit& unit) {
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  const bool world = over_all(rank.plan.optimizer, axes.mesh);
  const Channel& axis = world ? *axes.group : *axes.shard;
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (flat.fetched == flat.version) continue;
    const Unit::Busy busy(unit);
    flat.fetched = flat.version;
    const uint64_t size = size_of(flat.desc.dtype);
    for (int m = 0; m < axis.size(); ++m) {
      const int holder = axis.holder(m);
      if (holder == axis.index()) continue;
      const auto place = static_cast<uint64_t>(m);
      const Range range = world ? part_range(flat.desc.elements, place, axes.mesh)
                                : row_range(flat.desc.elements, place, axes.mesh);
      const int member = world ? holder : axes.of_shard(holder);
      const uint64_t offset = unit.slot(member).offsets.values[f].load(std::memory_order_relaxed);
      parallel_copy(rank, flat.writable + range.begin * size,
                    unit.channel().memory(member, offset + range.begin * size),
                    range.size() * size);
      add(rank.counters.gather_copied, range.size() * size);
    }
  }
}

}  // namespace meron
