// SPDX-License-Identifier: Apache-2.0
// Memory for what a unit stages: of remote ranks, of the drive, of the secondary partition.
#include <fmt/format.h>

#include <algorithm>

#include "io/drive_error.h"
#include "quant/wire.h"
#include "unit/unit.h"

namespace meron {
namespace {

uint64_t bytes_of(const Unit::Ranges& ranges) {
  uint64_t bytes = 0;
  for (const auto& [offset, size] : ranges) bytes += size;
  return bytes;
}

// How long a call that waits for the drive, which rings, sleeps without a look.
constexpr int64_t kLookNs = kNanosPerMilli;

}  // namespace

Unit::Staged Unit::staged() const {
  Staged out;
  if (!is_sharded(rank_.plan.param)) return out;
  const Channel& shard = *axes_.shard;
  for (const Flat& flat : flats_) {
    const uint64_t size = size_of(flat.desc.dtype);
    const auto place = [&](const Range& range) {
      return std::pair(flat.window_offset + range.begin * size, range.size() * size);
    };
    for (int j = 0; j < shard.size(); ++j) {
      if (shard.is_local(j) || shard.holder(j) != shard.index()) continue;
      out.rows.push_back(
          place(row_range(flat.desc.elements, static_cast<uint64_t>(j), axes_.mesh)));
    }
    const bool stays = flat.on_device != nullptr && flat.on_device->mirrored();
    if (flat.packed || (flat.shard && !stays)) out.own.push_back(place(flat.rest));
    const auto parts = parts_of(flat);
    out.parts.insert(out.parts.end(), parts.begin(), parts.end());
  }
  return out;
}

Status Unit::hold(const Ranges& ranges, MemoryKind kind) {
  const uint64_t bytes = bytes_of(ranges);
  MERON_TRY(
      rank_.arena().charge(bytes, kind, fmt::format("the gathered values of unit '{}'", name_)));
  const auto reserve = [&]() -> Status {
    const Recess recess(bytes >= kLongBytes);
    for (const auto& [offset, size] : ranges) {
      MERON_TRY(rank_.transport.window().reserve(offset, size));
    }
    return Ok{};
  };
  Status reserved = reserve();
  if (bytes >= kLongBytes) rank_.transport.ring();  // for those that found it busy
  if (!reserved.ok()) give_back(ranges, kind);
  return reserved;
}

void Unit::give_back(const Ranges& ranges, MemoryKind kind) {
  const uint64_t bytes = bytes_of(ranges);
  {
    const Recess recess(bytes >= kLongBytes);
    for (const auto& [offset, size] : ranges) {
      // A failure does no harm: the next gather overwrites these values.
      (void)rank_.transport.window().discard(offset, size).ok();
    }
  }
  rank_.arena().discharge(bytes, kind);
  if (bytes >= kLongBytes) rank_.transport.ring();  // for those that found it busy
}

Unit::Ranges Unit::staged_ranges() const {
  Staged ranges = staged();
  Ranges all = std::move(ranges.rows);
  all.insert(all.end(), ranges.own.begin(), ranges.own.end());
  if (drops_parts()) all.insert(all.end(), ranges.parts.begin(), ranges.parts.end());
  return all;
}

Status Unit::hold_staged() {
  const Busy busy(*this);
  if (secondary_on_host(rank_.plan)) MERON_TRY(hold_secondary());
  if (holds_staged_) return Ok{};
  // Releases other units' memory before this one takes more.
  settle_waiting(rank_);
  // Counted first: the lock may be released while memory is reserved.
  if (takes_buffer()) ++rank_.drive.units_here;
  Status held = hold(staged_ranges(), MemoryKind::staging);
  holds_staged_ = held.ok();
  if (!held.ok() && takes_buffer()) --rank_.drive.units_here;
  return held;
}

void Unit::drop_staged() {
  if (!holds_staged_ || leases_ > 0 || state_ == ValueState::updating) return;
  if (exchanging() || busy() || busy_with_values() || copied_from() ||
      !reached(local_peers(), gathers, &UnitSlot::views_released)) {
    return settle_later();
  }
  const Busy busy(*this);  // others may hold it again afterwards
  arrivals.rows_here = arrivals.rows_asked = UnitArrivals::kNothing;
  for (Flat& flat : flats_) {
    flat.unpacked = false;
    if (flat.shard) flat.shard->forget();
  }
  // Parts of rows that replicas hold alike stay.
  if (drops_parts()) arrivals.parts_here = arrivals.parts_asked = UnitArrivals::kNothing;
  give_back(staged_ranges(), MemoryKind::staging);
  holds_staged_ = false;
  if (takes_buffer()) --rank_.drive.units_here;
}

Result<bool> Unit::stage_own() {
  if (busy_with_values()) return false;
  if (lacks_buffer()) {
    units_being_stored(rank_);  // releases memory of those that have been written
    if (busy_with_values() || lacks_buffer()) return false;
  }
  const Busy mine(*this);
  return bring_own_while_busy();
}

Result<bool> Unit::bring_own_while_busy() {
  bool here = true;
  for (Flat& flat : flats_) {
    if (!flat.packed && !flat.shard) continue;
    MERON_TRY(hold_staged());
    if (flat.shard) {
      MERON_ASSIGN(const bool staged, flat.shard->stage());
      here = here && staged;
      if (!staged || !flat.coded() || std::exchange(flat.unpacked, true)) continue;
      kernels::QuantError lost;
      encode_values(flat, &lost);
      continue;
    }
    if (flat.unpacked) continue;
    const Wire wire(frozen_codec(), rank_.threads);
    wire.decode(flat.writable + flat.rest.begin * size_of(flat.desc.dtype), flat.desc.dtype,
                flat.encoded, flat.rest.size(), read_by_peers());
    flat.unpacked = true;
  }
  return here;
}

Status Unit::open_change(bool step) {
  step_opens_ = step;
  const Result<bool> begun = changeable();
  return begun.ok() ? Status(Ok{}) : Status(begun.error());
}

Result<bool> Unit::changeable() {
  if (busy_with_values()) return false;
  const Busy mine(*this);
  if (!step_opens_) {
    for (Flat& flat : flats_) {
      if (!flat.shard) continue;
      MERON_TRY(hold_staged());
      MERON_ASSIGN(const bool free, flat.shard->open(false));
      if (!free) return false;
    }
    return bring_own_while_busy();
  }
  bool ready = true;
  for (Flat& flat : flats_) {
    if (!flat.shard || !flat.desc.trainable) continue;
    MERON_TRY(hold_staged());
    MERON_ASSIGN(const bool free, flat.shard->open(flat.master != nullptr));
    ready = ready && free;
  }
  return ready;
}

bool Unit::busy() const {
  return std::any_of(flats_.begin(), flats_.end(),
                     [](const Flat& flat) { return flat.shard && flat.shard->busy(); });
}

size_t Unit::units_being_stored(Rank& rank) {
  std::erase_if(rank.drive.storing, [](const Unit* unit) { return !unit->busy(); });
  settle_waiting(rank);
  return rank.drive.storing.size();
}

bool Unit::may_change(size_t open) const {
  const size_t changing = open + units_being_stored(rank_);
  if (changing == 0) return true;
  if (changing >= rank_.plan.param.buffers) return false;
  return holds_staged_ || !takes_buffer() || rank_.drive.units_here < rank_.plan.param.buffers;
}

const Unit* Unit::unit_being_stored_first() const {
  if (holds_staged_ || !takes_buffer()) return nullptr;
  if (rank_.drive.units_here < rank_.plan.param.buffers) return nullptr;
  const auto first = std::find_if(rank_.drive.storing.begin(), rank_.drive.storing.end(),
                                  [](const Unit* unit) { return unit->busy(); });
  return first == rank_.drive.storing.end() ? nullptr : *first;
}

void Unit::wait_for_drive(int64_t timeout_ns) const {
  if (const Unit* const first = unit_being_stored_first()) return first->wait_for_drive(timeout_ns);
  for (const Flat& flat : flats_) {
    if (flat.shard) flat.shard->wait(timeout_ns);
  }
}

std::string Unit::drive_text() const {
  if (releasing_.held_for_save) return fmt::format("a save copies unit '{}'", name_);
  if (const Unit* const first = unit_being_stored_first()) return first->drive_text();
  for (const Flat& flat : flats_) {
    if (flat.shard && flat.shard->busy()) return flat.shard->describe();
  }
  return {};
}

Status Unit::use_values(const std::function<void()>& use) {
  // An update keeps them in memory itself, and ends when it is published.
  const bool leased = state_ != ValueState::updating;
  if (leased) lease();
  Status here = await_own();
  if (here.ok()) {
    const Recess recess;  // the lease, or the update, keeps them
    use();
  }
  if (!leased) return here;
  Status ended = unlease();
  return here.ok() ? ended : here;
}

Status Unit::await_own() {
  const Deadline deadline = rank_.deadline();
  while (true) {
    MERON_ASSIGN(const bool here, stage_own());
    if (here) return Ok{};
    if (deadline.passed()) {
      return drive_silent_error(rank_.drive.storage->path(), rank_.timeout_ns);
    }
    const Recess recess;
    Transport::Sleeper sleeper(rank_.transport);
    sleeper.sleep(std::min(deadline.remaining(), kLookNs));
  }
}

Status Unit::prepare_device() {
  if (!rank_.device) return Ok{};
  on_device_ = std::make_unique<GatheredOnDevice>(
      *rank_.device, fmt::format("the gathered values of unit '{}'", name_));
  // Zeros are a write too: gathers before the first other write wait for them.
  if (all_on_device()) MERON_TRY(on_device_->note_written());
  for (Flat& flat : flats_) {
    // Pages that are released and replaced cannot be pinned: the device would use the old ones.
    if (!stages_values()) rank_.pin(flat.writable, flat.value_bytes());
  }
  return Ok{};
}

bool Unit::all_on_device() const {
  return stores() && std::all_of(flats_.begin(), flats_.end(),
                                 [](const Flat& flat) { return flat.on_device != nullptr; });
}

bool Unit::uses_device() const {
  return sums_on_device() || std::any_of(flats_.begin(), flats_.end(), [](const Flat& flat) {
           return flat.on_device != nullptr;
         });
}

Status Unit::lease_device() {
  if (whole_on_device()) {
    std::vector<std::byte*> places;
    places.reserve(flats_.size());
    for (const Flat& flat : flats_) places.push_back(flat.on_device->data());
    return on_device_->lease_in_place(std::move(places));
  }
  std::vector<GatheredOnDevice::Piece> pieces;
  pieces.reserve(flats_.size());
  // By the address that was pinned.
  for (const Flat& flat : flats_)
    pieces.push_back({flat.writable, flat.value_bytes(), !stages_values()});
  uint64_t copied = 0;
  Status leased = on_device_->lease(pieces, &copied);
  add(rank_.counters.device.up, copied);
  return leased;
}

// A device that has failed copies nothing any more.
bool Unit::copied_from() const {
  if (!on_device_) return false;
  const auto settled = on_device_->settled();
  return settled.ok() && !*settled;
}

}  // namespace meron
