// SPDX-License-Identifier: Apache-2.0
#include "values/import_from_nodes.h"

#include <fmt/format.h>

namespace meron {

Import::Import(Unit& unit, Kind kind, bool again)
    : unit_(unit),
      kind_(kind),
      again_(again),
      batch_(std::make_shared<Batch>(unit.channel().transport().world_size())) {}

Result<std::shared_ptr<Import>> Import::begin(Unit& unit, Kind kind, Channel& axis, uint64_t tag,
                                              bool again) {
  std::shared_ptr<Import> import(new Import(unit, kind, again));
  for (Flat& flat : unit.flats()) {
    // Frozen ones stay as they are at a step: no rank sends them again.
    if (kind == Kind::whole || (kind == Kind::parts && unit.keeps_parts())) {
      if (flat.requested == flat.version) continue;
      flat.requested = flat.version;
    }
    MERON_TRY(import->exchange(flat, axis, tag));
  }
  unit.track(import->batch_);
  return import;
}

Range Import::range_of(const Flat& flat, const Channel& axis, int member) const {
  const Axes& axes = unit_.axes();
  const auto place = static_cast<uint64_t>(member);
  const uint64_t n = flat.desc.elements;
  switch (kind_) {
    case Kind::parts:
      return part_range(n, static_cast<uint64_t>(axes.of_replica(member)), axes.mesh);
    case Kind::rows:
      return row_range(n, place, axes.mesh);
    case Kind::whole:
      break;
  }
  return &axis == axes.shard ? row_range(n, place, axes.mesh) : part_range(n, place, axes.mesh);
}

// Rows of several replicas are whole when they travel on, and go as they are.
bool Import::encoded(const Flat& flat) const {
  if (kind_ == Kind::rows) return flat.packed && !unit_.axes().replicas();
  return kind_ == Kind::parts && (flat.packed || flat.coded());
}

uint64_t Import::wire_bytes_of(const Flat& flat, const Range& range) const {
  const uint64_t size = size_of(flat.desc.dtype);
  if (!encoded(flat)) return range.size() * size;
  return wire_bytes(unit_.codec_of(flat), range.size(), size);
}

Status Import::exchange(Flat& flat, Channel& axis, uint64_t tag) {
  Link& link = *axis.link();
  Rank& rank = unit_.rank();
  const uint64_t size = size_of(flat.desc.dtype);
  const Range own = range_of(flat, axis, axis.index());
  const std::byte* const from = encoded(flat) ? flat.encoded : flat.writable + own.begin * size;
  // Replicas that hold the same shard do not share it: each stages its own.
  const bool each = kind_ == Kind::parts && !over_all(rank.plan.param, unit_.axes().mesh);
  const auto send = [&](int m) {
    link.send(batch_, axis.members().world_rank(m), tag, from, wire_bytes_of(flat, own));
  };
  if (!each) {
    for (const int m : axis.exports()) send(m);
  }
  for (int m = 0; m < axis.size(); ++m) {
    if (axis.is_local(m)) continue;
    if (each) send(m);
    if (!each && axis.holder(m) != axis.index()) continue;
    const Range range = range_of(flat, axis, m);
    if (range.size() == 0) continue;
    const uint64_t bytes = wire_bytes_of(flat, range);
    Piece piece{&flat, range, nullptr};
    if (again_ || encoded(flat)) {
      MERON_ASSIGN(piece.staging,
                   Staging::allocate(rank.transport.shared_arena(), bytes,
                                     fmt::format("what arrives of unit '{}'", unit_.name())));
    }
    std::byte* const to =
        piece.staging ? piece.staging->data() : flat.writable + range.begin * size;
    link.receive(batch_, axis.members().world_rank(m), tag, to, bytes, piece.staging);
    pieces_.push_back(std::move(piece));
  }
  return Ok{};
}

void Import::unpack() {
  Rank& rank = unit_.rank();
  const Unit::Busy busy(unit_);
  for (const Piece& piece : pieces_) {
    Flat& flat = *piece.flat;
    const uint64_t size = size_of(flat.desc.dtype);
    add(rank.counters.gather_copied, piece.range.size() * size);
    add(rank.counters.inter_node_gather, wire_bytes_of(flat, piece.range));
    if (again_ || !piece.staging) continue;
    const Wire wire(unit_.codec_of(flat), rank.threads);
    wire.decode(flat.writable + piece.range.begin * size, flat.desc.dtype, piece.staging->data(),
                piece.range.size(), unit_.read_by_peers(), flat.difference);
  }
  pieces_.clear();
}

}  // namespace meron
