// SPDX-License-Identifier: Apache-2.0
#include "param/gather.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/copy.h"
#include "param/staging.h"

namespace meron {
namespace {

// Copies in cache-line grains, so that threads do not share lines.
void parallel_copy(Rank& rank, std::byte* to, const std::byte* from, uint64_t bytes) {
  rank.threads.for_range(0, bytes, 4096, kInlineElements * sizeof(float),
                         [&](int, uint64_t begin, uint64_t end) {
                           kernels::copy(to + begin, from + begin, end - begin);
                         });
}

// What of the values of all units lies with peers.
uint64_t remote_bytes(const Flat& flat) {
  return (flat.desc.elements - flat.part.size()) * size_of(flat.desc.dtype);
}

}  // namespace

GatherOperation::GatherOperation(std::vector<std::shared_ptr<Unit>> units, GatherMode mode,
                                 std::vector<GatherTarget> targets, Deadline deadline)
    : Operation(units.front()->channel(), deadline),
      units_(std::move(units)),
      whole_(units_.size(), false),
      mode_(mode),
      targets_(std::move(targets)) {
  versions_.reserve(units_.size());
}

Result<std::shared_ptr<GatherOperation>> GatherOperation::begin(
    std::vector<std::shared_ptr<Unit>> units, GatherMode mode, std::vector<GatherTarget> targets,
    Deadline deadline) {
  std::shared_ptr<GatherOperation> gather(
      new GatherOperation(std::move(units), mode, std::move(targets), deadline));
  for (size_t i = 0; i < gather->units_.size(); ++i) {
    Unit& unit = *gather->units_[i];
    gather->versions_.push_back(unit.version());
    if (unit.state() == ValueState::available) {
      gather->whole_[i] = true;
    } else {
      MERON_TRY(unit.enter(ValueState::gathering));
    }
    unit.lease();
  }
  return gather;
}

GatherOperation::~GatherOperation() {
  for (const GatherTarget& target : targets_) {
    if (target.buffer) units_.front()->rank().arena().release(target.buffer);
  }
}

bool GatherOperation::make_whole(Unit& unit, size_t index) {
  Rank& rank = unit.rank();
  const bool remote = unit.remote();
  if (!remote && !unit.all_reached(versions_[index], &UnitSlot::published)) return false;
  const bool replicated = !is_sharded(rank.plan.param);
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (!replicated) {
      if (unit.state() == ValueState::available) continue;
      if (remote) {
        add(rank.counters.gather_copied, remote_bytes(flat));
      } else if (mode_ == GatherMode::view) {
        add(rank.counters.gather_mapped, remote_bytes(flat));
      }
      continue;
    }
    // A replicated optimizer writes everything on every rank: there is nothing to fetch.
    if (flat.fetched == flat.version || !is_sharded(rank.plan.optimizer)) continue;
    const uint64_t size = size_of(flat.desc.dtype);
    const uint64_t members = static_cast<uint64_t>(channel_.size());
    for (int m = 0; m < channel_.size() && !remote; ++m) {
      if (m == channel_.index()) continue;
      const Range part = shard_range(flat.desc.elements, static_cast<uint64_t>(m), members);
      const uint64_t offset = unit.slot(m).value_offset[f].load(std::memory_order_relaxed);
      parallel_copy(rank, flat.writable + part.begin * size,
                    channel_.memory(m, offset + part.begin * size), part.size() * size);
    }
    add(rank.counters.gather_copied, remote_bytes(flat));
    flat.fetched = flat.version;
  }
  return true;
}

// Every rank sends at every gather: whether a peer still has the values is the peer's own business.
Status GatherOperation::exchange() {
  Link& link = *channel_.transport().link();
  const uint64_t tag = channel_.tag(sequence(), 0);
  const uint64_t members = static_cast<uint64_t>(channel_.size());
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  for (size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = *units_[i];
    Rank& rank = unit.rank();
    const bool replicated = !is_sharded(rank.plan.param);
    // What comes while the values are read, or come already, is the same once more.
    const bool again = !replicated && (whole_[i] || unit.exchanging());
    MERON_TRY(unit.hold_remote_values());
    for (Flat& flat : unit.flats()) {
      if (replicated) {
        if (!is_sharded(rank.plan.optimizer) || flat.requested == flat.version) continue;
        flat.requested = flat.version;
      }
      std::shared_ptr<Staging> staging;
      if (again) {
        MERON_ASSIGN(staging,
                     Staging::allocate(rank.transport.shared_arena(), flat.value_bytes(),
                                       fmt::format("a second gather of unit '{}'", unit.name())));
      }
      std::byte* const to = again ? staging->data() : flat.writable;
      const uint64_t size = size_of(flat.desc.dtype);
      for (int m = 0; m < channel_.size(); ++m) {
        if (m == channel_.index()) continue;
        const int peer = channel_.members().world_rank(m);
        const Range part = shard_range(flat.desc.elements, static_cast<uint64_t>(m), members);
        link.receive(batch_, peer, tag, to + part.begin * size, part.size() * size, staging);
        link.send(batch_, peer, tag, flat.writable + flat.part.begin * size,
                  flat.part.size() * size);
      }
    }
    unit.track(batch_);
  }
  for (const auto& unit : units_) {
    const auto& exchanges = unit->exchanges();
    arriving_.insert(arriving_.end(), exchanges.begin(), exchanges.end());
  }
  return Ok{};
}

Result<bool> GatherOperation::advance() {
  if (released_) return true;
  if (units_.front()->remote()) {
    if (batch_ == nullptr) {
      if (Status begun = exchange(); !begun.ok()) return channel_.fail(begun.error());
    }
    MERON_ASSIGN(const bool agreed, channel_.agreed(sequence()));
    if (!agreed || !std::all_of(arriving_.begin(), arriving_.end(),
                                [](const auto& batch) { return batch->done(); })) {
      return false;
    }
  }
  bool all = true;
  for (size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = *units_[i];
    if (!whole_[i]) {
      if (!make_whole(unit, i)) {
        all = false;
        continue;
      }
      whole_[i] = true;
      MERON_TRY(unit.enter(ValueState::available));
    }
  }
  if (!all) return false;
  if (mode_ != GatherMode::view) {
    copy_targets();
    // The copy is the caller's; the values may change from now on.
    MERON_TRY(release());
  }
  return true;
}

void GatherOperation::copy_targets() {
  for (const GatherTarget& target : targets_) {
    const Param& param = *target.param;
    const Flat& flat = param.unit->flat_of(param);
    const uint64_t size = size_of(flat.desc.dtype);
    Rank& rank = param.unit->rank();
    parallel_copy(rank, target.data, flat.values + param.place.offset * size, param.count * size);
    if (is_sharded(rank.plan.param) && !param.unit->remote()) {
      add(rank.counters.gather_copied, (param.count - part_of(param, flat.part).size()) * size);
    }
  }
}

Status GatherOperation::release() {
  if (released_) return Ok{};
  released_ = true;
  for (const auto& unit : units_) MERON_TRY(unit->unlease());
  return Ok{};
}

const std::byte* GatherOperation::data(const Param& param) const {
  if (mode_ != GatherMode::view) {
    for (const GatherTarget& target : targets_) {
      if (target.param == &param) return target.data;
    }
    return nullptr;
  }
  for (const auto& unit : units_) {
    if (param.unit != unit.get()) continue;
    const Flat& flat = unit->flat_of(param);
    return flat.values + param.place.offset * size_of(flat.desc.dtype);
  }
  return nullptr;
}

std::vector<int> GatherOperation::missing() const {
  if (units_.front()->remote()) return awaited(channel_, batch_.get());
  std::vector<int> late;
  for (size_t i = 0; i < units_.size(); ++i) {
    for (const int m : units_[i]->behind(versions_[i], &UnitSlot::published)) {
      if (std::find(late.begin(), late.end(), m) == late.end()) late.push_back(m);
    }
  }
  std::sort(late.begin(), late.end());
  return late;
}

std::string GatherOperation::describe() const {
  if (units_.size() == 1) return fmt::format("gather of unit '{}'", units_.front()->name());
  return fmt::format("gather of {} units from '{}' on", units_.size(), units_.front()->name());
}

}  // namespace meron
