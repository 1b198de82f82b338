// SPDX-License-Identifier: Apache-2.0
// What a unit's values need beyond the rank's own: memory for what is brought in, and encodings.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "param/unit.h"

namespace meron {
namespace {

// Of stochastic rounding: another one for each flat and version, the same on all ranks.
uint64_t seed_of(const Unit& unit, size_t flat, uint64_t count) {
  return hash_combine(hash_combine(unit.name_hash(), flat), count);
}

uint64_t bytes_of(const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  uint64_t bytes = 0;
  for (const auto& [offset, size] : ranges) bytes += size;
  return bytes;
}

}  // namespace

Unit::Brought Unit::brought() const {
  Brought out;
  if (!is_sharded(rank_.plan.param)) return out;
  const bool over_world = over_all(rank_.plan.param, axes_.mesh);
  const Channel& shard = *axes_.shard;
  for (const Flat& flat : flats_) {
    const uint64_t size = size_of(flat.desc.dtype);
    const auto place = [&](const Range& range) {
      return std::pair(flat.window_offset + range.begin * size, range.size() * size);
    };
    for (int j = 0; j < shard.size(); ++j) {
      if (shard.near(j) || shard.holder(j) != shard.index()) continue;
      out.rows.push_back(
          place(row_range(flat.desc.elements, static_cast<uint64_t>(j), axes_.mesh)));
    }
    if (flat.packed) out.packed.push_back(place(flat.rest));
    if (!axes_.replicas() || !over_world) continue;
    const Channel& replica = *axes_.replica;
    for (int i = 0; i < replica.size(); ++i) {
      if (replica.near(i) || replica.holder(i) != replica.index()) continue;
      out.parts.push_back(place(
          part_range(flat.desc.elements, static_cast<uint64_t>(axes_.of_replica(i)), axes_.mesh)));
    }
  }
  return out;
}

Status Unit::hold(const Ranges& ranges, MemoryKind kind) {
  const uint64_t bytes = bytes_of(ranges);
  MERON_TRY(
      rank_.arena().charge(bytes, kind, fmt::format("the gathered values of unit '{}'", name_)));
  for (const auto& [offset, size] : ranges) {
    if (Status reserved = rank_.transport.window().reserve(offset, size); !reserved.ok()) {
      give_back(ranges, kind);
      return reserved;
    }
  }
  return Ok{};
}

void Unit::give_back(const Ranges& ranges, MemoryKind kind) {
  for (const auto& [offset, size] : ranges) {
    // Only memory is given back: what stays is overwritten by the next gather.
    (void)rank_.transport.window().discard(offset, size).ok();
  }
  rank_.arena().discharge(bytes_of(ranges), kind);
}

bool Unit::drops_parts() const {
  return !rank_.plan.second_copy && over_all(rank_.plan.param, axes_.mesh);
}

Unit::Ranges Unit::passing() const {
  Brought ranges = brought();
  Ranges all = std::move(ranges.rows);
  all.insert(all.end(), ranges.packed.begin(), ranges.packed.end());
  if (drops_parts()) all.insert(all.end(), ranges.parts.begin(), ranges.parts.end());
  return all;
}

Status Unit::hold_brought() {
  if (!holds_parts_ && !drops_parts()) {
    MERON_TRY(
        hold(brought().parts, rank_.plan.second_copy ? MemoryKind::param : MemoryKind::staging));
    holds_parts_ = true;
  }
  if (holds_passing_) return Ok{};
  IdlePages& idle = rank_.idle;
  if (is_idle_) {
    idle.reuse(this);
  } else {
    const Ranges ranges = passing();
    idle.take(bytes_of(ranges));
    while (Unit* const other = idle.excess()) other->give_back_idle();
    if (Status held = hold(ranges, MemoryKind::staging); !held.ok()) {
      idle.drop(bytes_of(ranges));
      return held;
    }
  }
  is_idle_ = false;
  holds_passing_ = true;
  return Ok{};
}

void Unit::drop_brought() {
  if (!holds_passing_ || leases_ > 0) return;
  if (exchanging() || !reached(mates_, gathers, &UnitSlot::let_go)) {
    auto& lingering = rank_.lingering;
    if (std::find(lingering.begin(), lingering.end(), this) == lingering.end()) {
      lingering.push_back(this);
    }
    return;
  }
  holds_passing_ = false;
  rows_here = rows_asked = unpacked = kNothing;
  if (drops_parts()) parts_here = parts_asked = kNothing;
  is_idle_ = true;
  rank_.idle.keep(this, bytes_of(passing()));
}

void Unit::give_back_idle() {
  is_idle_ = false;
  give_back(passing(), MemoryKind::staging);
}

void Unit::drop_copies() {
  drop_brought();
  if (!holds_parts_ || !rank_.plan.second_copy) return;
  holds_parts_ = false;
  give_back(brought().parts, MemoryKind::param);
}

Status Unit::unpack() {
  const bool packed =
      std::any_of(flats_.begin(), flats_.end(), [](const Flat& flat) { return flat.packed; });
  if (!packed || unpacked == version_) return Ok{};
  MERON_TRY(hold_brought());
  const Wire wire(frozen_codec(), rank_.threads);
  for (Flat& flat : flats_) {
    if (!flat.packed) continue;
    wire.decode(flat.writable + flat.rest.begin * size_of(flat.desc.dtype), flat.desc.dtype,
                flat.encoded, flat.rest.size(), read_by_peers());
  }
  unpacked = version_;
  return Ok{};
}

void Unit::encode_values(Flat& flat, kernels::QuantError* error) {
  const uint64_t size = size_of(flat.desc.dtype);
  const auto index = static_cast<size_t>(&flat - flats_.data());
  const uint64_t seed = seed_of(*this, index, version_);
  if (flat.packed) {
    const Wire wire(frozen_codec(), rank_.threads);
    wire.encode(flat.encoded, flat.writable + flat.rest.begin * size, flat.desc.dtype,
                flat.rest.size(), seed, {}, nullptr);
    return;
  }
  const Wire wire(value_codec, rank_.threads);
  wire.encode(flat.encoded, flat.exact, flat.desc.dtype, flat.part.size(), seed, {}, error);
  wire.decode(flat.writable + flat.part.begin * size, flat.desc.dtype, flat.encoded,
              flat.part.size(), read_by_peers());
}

namespace {

// Whether a rank's last error, as its word has it, is above the limit; NaN is.
template <class Words>
bool above(const Unit& unit, uint64_t number, double limit, Words words) {
  for (int m = 0; m < unit.channel().size(); ++m) {
    const uint64_t word = (unit.slot(m).*words)[number % 2].load(std::memory_order_seq_cst);
    if (!(std::bit_cast<float>(static_cast<uint32_t>(word)) <= limit)) return true;
  }
  return false;
}

}  // namespace

void Unit::review_value_codec() {
  const double limit = value_codec.error_limit;
  if (limit == 0.0 || !axes_.replicas()) return;
  if (!above(*this, version_, limit, &UnitSlot::value_error)) return;
  value_codec = {.kind = CodecKind::bf16};
  rank_.notices.push_back(fmt::format(
      "the values of unit '{}' travel in bf16 from version {} on: the error of {} was above {} "
      "(this rank's: {:.3g}, worst block {:.3g})",
      name_, version_ + 1, name_of(rank_.plan.param.codec.kind), limit, value_error, value_worst));
}

void Unit::review_gradient_codec() {
  const double limit = gradient_codec.error_limit;
  if (limit == 0.0 || exchanges == 0) return;
  if (!above(*this, exchanges, limit, &UnitSlot::gradient_error)) return;
  gradient_codec = {.kind = CodecKind::bf16};
  rank_.notices.push_back(fmt::format(
      "the gradients of unit '{}' travel in bf16 from exchange {} on: the error of {} was above {} "
      "(this rank's: {:.3g}, worst block {:.3g})",
      name_, exchanges + 1, name_of(rank_.plan.gradient.codec.kind), limit, gradient_error,
      gradient_worst));
}

void Unit::drop_feedback() {
  for (Flat& flat : flats_) {
    if (flat.residual == nullptr) continue;
    std::fill_n(flat.residual, flat.row.size(), 0.0f);
  }
}

}  // namespace meron
