// SPDX-License-Identifier: Apache-2.0
#include "param/reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/reduce.h"
#include "param/download.h"

namespace meron {
namespace {

// Sums of at most so many elements go back and forth in turn: one begins where the last one ended,
// with what is in a core's cache still. In chunks, within which the prefetcher goes forward. Longer
// ones leave nothing behind that would help.
constexpr uint64_t kCached = 256 << 10;
constexpr uint64_t kChunk = 8192;

}  // namespace

ReduceOperation::ReduceOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options,
                                 bool ends, Deadline deadline)
    : Operation(channel_for(*unit, options), deadline),
      unit_(std::move(unit)),
      options_(options),
      ends_(ends),
      between_(between_replicas(*unit_, options)) {}

Channel& ReduceOperation::channel_for(const Unit& unit, const ReduceOptions& options) {
  return between_replicas(unit, options) ? *unit.axes().group : *unit.axes().shard;
}

Result<std::shared_ptr<ReduceOperation>> ReduceOperation::begin(std::shared_ptr<Unit> unit,
                                                                const ReduceOptions& options,
                                                                bool ends, Deadline deadline) {
  std::shared_ptr<ReduceOperation> reduce(
      new ReduceOperation(std::move(unit), options, ends, deadline));
  Unit& target = *reduce->unit_;
  MERON_TRY(target.enter(GradientState::reducing));
  reduce->reduction_ = ++target.reductions;
  if (reduce->between_) reduce->exchange_ = ++target.exchanges;
  reduce->accumulate_ = target.sum_started;
  target.reduction = reduce;
  target.at_boundary = options.boundary;
  target.between = reduce->between_;
  if (target.bucket != nullptr) {
    target.bucket->last_reduction = reduce->reduction_;
    target.bucket->between = reduce->between_;
  }
  if (target.download) {
    reduce->stage_ = Stage::downloading;
  } else {
    reduce->contribute();
  }
  return reduce;
}

void ReduceOperation::contribute() {
  unit_->own_slot().contributed.store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
}

// What the device fails to give the peers wait for in vain: they are told.
Result<bool> ReduceOperation::downloaded() {
  auto ended = unit_->download->end();
  if (!ended.ok()) return channel_.fail(std::move(ended).error().on(unit_->name()));
  if (*ended) unit_->download.reset();
  return ended;
}

// Whether all that need this rank's sums have them in its own memory only.
bool ReduceOperation::shares() const {
  const Unit& unit = *unit_;
  const Row& optimizer = unit.rank().plan.optimizer;
  if (between_) return !over_all(optimizer, unit.axes().mesh);
  return !is_sharded(optimizer) && channel_.size() > 1;
}

Result<bool> ReduceOperation::advance() {
  Unit& unit = *unit_;
  // A save copies what encoding has lost so far.
  if (unit.held_for_save() && unit.keeps_feedback()) return false;
  if (stage_ == Stage::downloading) {
    MERON_ASSIGN(const bool here, downloaded());
    if (!here) return false;
    contribute();
    stage_ = Stage::contributing;
  }
  if (stage_ == Stage::contributing) {
    if (!ends_) {
      MERON_ASSIGN(const bool here, contributed());
      if (!here) return false;
      sum_rows();
      received_.clear();
    }
    if (between_) {
      if (Status begun = begin_exchange(); !begun.ok()) return channel_.fail(begun.error());
      stage_ = Stage::exchanging;
    } else if (shares()) {
      unit.own_slot().summed.store(reduction_, std::memory_order_seq_cst);
      channel_.transport().ring();
      send_sums();
      stage_ = Stage::sharing;
    } else {
      consume();
      MERON_TRY(end());
      return true;
    }
  }
  if (stage_ == Stage::exchanging) {
    MERON_ASSIGN(const bool here, exchanged());
    if (!here) return false;
    sum_parts();
    received_.clear();
    // Sums that replicas share are received where they belong: from here the next unit may begin.
    if (unit.sums_leave_bucket()) release_bucket();
    if (shares()) {
      if (Status begun = begin_sharing(); !begun.ok()) return channel_.fail(begun.error());
      stage_ = Stage::sharing;
    } else {
      consume();
      stage_ = Stage::parting;
    }
  }
  if (stage_ == Stage::sharing) {
    if (!unit.reached(near_peers(), reduction_, &UnitSlot::summed)) return false;
    if (batch_ && !batch_->done()) return false;
    if (between_) {
      fetch_parts();
    } else {
      fetch_sums();
    }
    consume();
    stage_ = Stage::parting;
  }
  // The trainer may change the sum once this has ended: no peer may still be reading it.
  if (!unit.reached(near_peers(), reduction_, &UnitSlot::consumed)) return false;
  MERON_TRY(end());
  return true;
}

// Whom this rank's sums are read by, in place.
std::vector<int> ReduceOperation::near_peers() const {
  return between_ ? unit_->local_replicas() : unit_->local_shards();
}

Result<bool> ReduceOperation::contributed() {
  const Channel& axis = *unit_->axes().shard;
  if (channel_.link() != nullptr) {
    if (batch_ == nullptr && axis.link() != nullptr) {
      if (Status begun = send_buckets(); !begun.ok()) return channel_.fail(begun.error());
    }
    MERON_ASSIGN(const bool agreed, channel_.agreed(sequence()));
    if (!agreed || (batch_ && !batch_->done())) return false;
  }
  return unit_->reached(unit_->local_shards(), reduction_, &UnitSlot::contributed);
}

Status ReduceOperation::send_buckets() {
  Unit& unit = *unit_;
  const Axes& axes = unit.axes();
  Channel& axis = *axes.shard;
  Link& link = *axis.link();
  const uint64_t tag = channel_.tag(sequence(), 0);
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  received_.resize(unit.flats().size());
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    const uint64_t size = size_of(unit.gradient_type(flat));
    const uint64_t own_bytes = flat.row.size() * size;
    MERON_ASSIGN(
        received_[f],
        Staging::allocate(channel_.transport().shared_arena(), own_bytes * axes.mesh.shards,
                          fmt::format("the peers' gradients of unit '{}'", unit.name())));
    for (int m = 0; m < axis.size(); ++m) {
      if (axis.is_local(m)) continue;
      const int peer = axis.members().world_rank(m);
      const Range row = row_range(flat.desc.elements, static_cast<uint64_t>(m), axes.mesh);
      link.receive(batch_, peer, tag, received_[f]->data() + static_cast<uint64_t>(m) * own_bytes,
                   own_bytes, received_[f]);
      link.send(batch_, peer, tag, flat.bucket + row.begin * size, row.size() * size);
      add(unit.rank().counters.far_reduced, own_bytes);
    }
  }
  return Ok{};
}

void ReduceOperation::send_sums() {
  Unit& unit = *unit_;
  const Axes& axes = unit.axes();
  Channel& axis = *axes.shard;
  if (axis.link() == nullptr) return;
  const uint64_t tag = channel_.tag(sequence(), 1);
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  for (const Flat& flat : unit.flats()) {
    if (!flat.desc.trainable) continue;
    // A sum that every rank is to have begins with the flat.
    auto* const sum = reinterpret_cast<std::byte*>(flat.sum);
    for (int m = 0; m < axis.size(); ++m) {
      if (axis.is_local(m)) continue;
      const int peer = axis.members().world_rank(m);
      const Range row = row_range(flat.desc.elements, static_cast<uint64_t>(m), axes.mesh);
      axis.link()->receive(batch_, peer, tag, sum + row.begin * sizeof(float),
                           row.size() * sizeof(float));
      axis.link()->send(batch_, peer, tag, sum + flat.row.begin * sizeof(float),
                        flat.row.size() * sizeof(float));
      add(unit.rank().counters.reduced, row.size() * sizeof(float));
      add(unit.rank().counters.far_reduced, row.size() * sizeof(float));
    }
  }
}

void ReduceOperation::sum_rows() {
  Unit& unit = *unit_;
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  const Channel& axis = *axes.shard;
  const size_t members = static_cast<size_t>(axis.size());
  const bool last = !axes.replicas() && options_.boundary;
  const float scale = last ? options_.scale(axis.size()) : 1.0f;
  const bool squares_wanted = last && unit.has_optimizer;
  const bool accumulate = accumulate_ && !(axes.replicas() && sums_apart(unit));
  const bool read_next = axes.replicas() ? between_ && unit.local_replicas().size() > 1
                                         : shares() && unit.local_shards().size() > 1;
  if (squares_wanted) unit.squares = {};
  unit.squares_known = squares_wanted;

  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable || flat.row.size() == 0) continue;
    const DType type = unit.gradient_type(flat);
    const uint64_t size = size_of(type);
    const Range& row = flat.row;
    float* const sum = axes.replicas() ? row_sum(flat) : flat.sum + (row.begin - flat.summed.begin);
    // Per member: this rank's row of its bucket.
    std::vector<const std::byte*> buckets(members);
    for (size_t m = 0; m < members; ++m) {
      const int member = static_cast<int>(m);
      if (!axis.is_local(member)) {
        buckets[m] = received_[f]->data() + m * row.size() * size;
        continue;
      }
      const int place = axes.of_shard(member);
      const uint64_t offset =
          unit.slot(place).bucket_offset[reduction_ % 2][f].load(std::memory_order_relaxed);
      buckets[m] = axis.memory(member, offset) + row.begin * size;
    }
    // An f32 bucket that is also the sum must be named by one address for the kernel.
    buckets[static_cast<size_t>(axis.index())] = flat.bucket + row.begin * size;
    std::vector<kernels::ExactSum> squares(
        squares_wanted ? static_cast<size_t>(rank.threads.threads()) : 0);
    {
      const Recess recess(row.size() >= kInlineElements);
      rank.threads.for_range(row.begin, row.end, kBlock, kInlineElements,
                             [&](int thread, uint64_t begin, uint64_t end) {
                               std::vector<const void*> inputs(members);
                               kernels::ExactSum* const sum_of_squares =
                                   squares_wanted ? &squares[static_cast<size_t>(thread)] : nullptr;
                               const uint64_t count = end - begin;
                               const bool back = count <= kCached && reduction_ % 2 != 0;
                               const uint64_t chunk = back ? kChunk : count;
                               const uint64_t chunks = (count + chunk - 1) / chunk;
                               for (uint64_t c = 0; c < chunks; ++c) {
                                 const uint64_t from = begin + chunk * (chunks - 1 - c);
                                 for (size_t m = 0; m < members; ++m) {
                                   inputs[m] = buckets[m] + (from - row.begin) * size;
                                 }
                                 kernels::reduce(sum + (from - row.begin), accumulate,
                                                 inputs.data(), members, kernel_type(type), scale,
                                                 std::min(chunk, end - from), sum_of_squares,
                                                 read_next);
                               }
                             });
    }
    for (const auto& each : squares) unit.squares.merge(each);
    add(rank.counters.reduced, (members - 1) * row.size() * size);
  }
}

void ReduceOperation::fetch_sums() {
  Unit& unit = *unit_;
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    for (const int m : unit.local_shards()) {
      if (m == axes.index()) continue;
      const Range row = row_range(flat.desc.elements, static_cast<uint64_t>(m), axes.mesh);
      const uint64_t offset = unit.slot(m).sum_offset[f].load(std::memory_order_relaxed);
      const std::byte* from = unit.channel().memory(m, offset + row.begin * sizeof(float));
      const Recess recess(row.size() >= kInlineElements);
      rank.threads.for_range(
          row.begin, row.end, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
            // Of f32 buckets, which are the sums too, peers have read all.
            kernels::hand_over(flat.sum + begin, from + (begin - row.begin) * sizeof(float),
                               (end - begin) * sizeof(float));
          });
      add(rank.counters.reduced, row.size() * sizeof(float));
    }
  }
}

void ReduceOperation::consume() {
  unit_->own_slot().consumed.store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
}

void ReduceOperation::release_bucket() {
  Unit& unit = *unit_;
  if (unit.bucket == nullptr) return;
  unit.bucket->held = false;
  unit.bucket = nullptr;
}

Status ReduceOperation::end() {
  Unit& unit = *unit_;
  release_bucket();
  unit.sum_started = !options_.boundary;
  return unit.enter(options_.boundary ? GradientState::ready : GradientState::partial);
}

std::vector<int> ReduceOperation::missing() const {
  const Unit& unit = *unit_;
  std::vector<int> late;
  switch (stage_) {
    case Stage::downloading:
      break;
    case Stage::contributing:
      late = unit.behind(unit.local_shards(), reduction_, &UnitSlot::contributed);
      break;
    case Stage::exchanging:
      late = unit.behind(unit.local_replicas(), reduction_, &UnitSlot::shard_ready);
      break;
    case Stage::sharing:
      late = unit.behind(near_peers(), reduction_, &UnitSlot::summed);
      break;
    case Stage::parting:
      late = unit.behind(near_peers(), reduction_, &UnitSlot::consumed);
      break;
  }
  std::vector<int> found = unit.places(channel_, late);
  for (const int m : awaited(channel_, batch_.get())) found.push_back(m);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::string ReduceOperation::describe() const {
  return fmt::format("reduce of unit '{}'", unit_->name());
}

}  // namespace meron
