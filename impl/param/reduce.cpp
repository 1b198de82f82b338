// SPDX-License-Identifier: Apache-2.0
#include "param/reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/reduce.h"

namespace meron {
namespace {

// Sums of at most so many elements go back and forth in turn: one begins where the last one ended,
// with what is in a core's cache still. In chunks, within which the prefetcher goes forward. Longer
// ones leave nothing behind that would help.
constexpr uint64_t kCached = 256 << 10;
constexpr uint64_t kChunk = 8192;

}  // namespace

ReduceOperation::ReduceOperation(std::shared_ptr<Unit> unit, const ReduceOptions& options,
                                 Deadline deadline)
    : Operation(unit->channel(), deadline), unit_(std::move(unit)), options_(options) {}

Result<std::shared_ptr<ReduceOperation>> ReduceOperation::begin(std::shared_ptr<Unit> unit,
                                                                const ReduceOptions& options,
                                                                Deadline deadline) {
  std::shared_ptr<ReduceOperation> reduce(new ReduceOperation(std::move(unit), options, deadline));
  Unit& target = *reduce->unit_;
  MERON_TRY(target.enter(GradientState::reducing));
  reduce->reduction_ = ++target.reductions;
  reduce->accumulate_ = target.sum_started;
  target.reduction = reduce;
  target.at_boundary = options.boundary;
  if (target.bucket != nullptr) target.bucket->last_reduction = reduce->reduction_;
  if (target.remote()) return reduce;
  target.own_slot().contributed.store(reduce->reduction_, std::memory_order_seq_cst);
  reduce->channel_.transport().ring();
  return reduce;
}

Result<bool> ReduceOperation::advance() {
  Unit& unit = *unit_;
  const bool shared = !is_sharded(unit.rank().plan.optimizer) && channel_.size() > 1;
  if (unit.remote()) return advance_remote(shared);
  if (stage_ == Stage::contributing) {
    if (!unit.all_reached(reduction_, &UnitSlot::contributed)) return false;
    sum();
    if (!shared) {
      consume();
      MERON_TRY(end());
      return true;
    }
    unit.own_slot().summed.store(reduction_, std::memory_order_seq_cst);
    channel_.transport().ring();
    stage_ = Stage::sharing;
  }
  if (stage_ == Stage::sharing) {
    if (!unit.all_reached(reduction_, &UnitSlot::summed)) return false;
    fetch_sums();
    consume();
    stage_ = Stage::parting;
  }
  // The trainer may change the sum once this has ended: no peer may still be fetching it.
  if (!unit.all_reached(reduction_, &UnitSlot::consumed)) return false;
  MERON_TRY(end());
  return true;
}

Result<bool> ReduceOperation::advance_remote(bool shared) {
  if (batch_ == nullptr) {
    if (Status begun = exchange_parts(); !begun.ok()) return channel_.fail(begun.error());
  }
  MERON_ASSIGN(const bool agreed, channel_.agreed(sequence()));
  if (!agreed || !batch_->done()) return false;
  if (stage_ == Stage::contributing) {
    sum();
    parts_.clear();
    unit_->own_slot().consumed.store(reduction_, std::memory_order_seq_cst);
    if (shared) {
      exchange_sums();
      stage_ = Stage::sharing;
      return false;
    }
  }
  MERON_TRY(end());
  return true;
}

Status ReduceOperation::exchange_parts() {
  Unit& unit = *unit_;
  Link& link = *channel_.transport().link();
  const uint64_t tag = channel_.tag(sequence(), 0);
  const uint64_t members = static_cast<uint64_t>(channel_.size());
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  parts_.resize(unit.flats().size());
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    const uint64_t size = size_of(unit.gradient_type(flat));
    const uint64_t own_bytes = flat.part.size() * size;
    MERON_ASSIGN(parts_[f],
                 Staging::allocate(channel_.transport().shared_arena(), own_bytes * members,
                                   fmt::format("the peers' gradients of unit '{}'", unit.name())));
    for (int m = 0; m < channel_.size(); ++m) {
      if (m == channel_.index()) continue;
      const int peer = channel_.members().world_rank(m);
      const Range part = shard_range(flat.desc.elements, static_cast<uint64_t>(m), members);
      link.receive(batch_, peer, tag, parts_[f]->data() + static_cast<uint64_t>(m) * own_bytes,
                   own_bytes, parts_[f]);
      link.send(batch_, peer, tag, flat.bucket + part.begin * size, part.size() * size);
    }
  }
  return Ok{};
}

void ReduceOperation::exchange_sums() {
  Unit& unit = *unit_;
  Link& link = *channel_.transport().link();
  const uint64_t tag = channel_.tag(sequence(), 1);
  const uint64_t members = static_cast<uint64_t>(channel_.size());
  batch_ = std::make_shared<Batch>(channel_.transport().world_size());
  for (const Flat& flat : unit.flats()) {
    if (!flat.desc.trainable) continue;
    // A sum that every rank is to have begins with the flat.
    auto* const sum = reinterpret_cast<std::byte*>(flat.sum);
    for (int m = 0; m < channel_.size(); ++m) {
      if (m == channel_.index()) continue;
      const int peer = channel_.members().world_rank(m);
      const Range part = shard_range(flat.desc.elements, static_cast<uint64_t>(m), members);
      link.receive(batch_, peer, tag, sum + part.begin * sizeof(float),
                   part.size() * sizeof(float));
      link.send(batch_, peer, tag, sum + flat.part.begin * sizeof(float),
                flat.part.size() * sizeof(float));
      add(unit.rank().counters.reduced, part.size() * sizeof(float));
    }
  }
}

void ReduceOperation::sum() {
  Unit& unit = *unit_;
  Rank& rank = unit.rank();
  const size_t members = static_cast<size_t>(channel_.size());
  const float scale = options_.boundary ? options_.scale(channel_.size()) : 1.0f;
  const bool squares_wanted = options_.boundary && unit.has_optimizer;
  const bool handed_over = !is_sharded(rank.plan.optimizer) && unit.read_by_peers();
  if (squares_wanted) unit.squares = {};
  unit.squares_known = squares_wanted;

  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable || flat.part.size() == 0) continue;
    const DType type = unit.gradient_type(flat);
    const uint64_t size = size_of(type);
    // Per member: this rank's part of its bucket.
    std::vector<const std::byte*> buckets(members);
    for (size_t m = 0; m < members; ++m) {
      const int member = static_cast<int>(m);
      if (!parts_.empty()) {
        buckets[m] = parts_[f]->data() + m * flat.part.size() * size;
        continue;
      }
      const uint64_t offset =
          unit.slot(member).bucket_offset[reduction_ % 2][f].load(std::memory_order_relaxed);
      buckets[m] = channel_.memory(member, offset) + flat.part.begin * size;
    }
    // An f32 bucket that is also the sum must be named by one address for the kernel.
    buckets[static_cast<size_t>(channel_.index())] = flat.bucket + flat.part.begin * size;
    std::vector<kernels::ExactSum> squares(
        squares_wanted ? static_cast<size_t>(rank.threads.threads()) : 0);
    rank.threads.for_range(flat.part.begin, flat.part.end, kBlock, kInlineElements,
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
                                 inputs[m] = buckets[m] + (from - flat.part.begin) * size;
                               }
                               kernels::reduce(flat.sum + (from - flat.owned.begin), accumulate_,
                                               inputs.data(), members, kernel_type(type), scale,
                                               std::min(chunk, end - from), sum_of_squares,
                                               handed_over);
                             }
                           });
    if (squares_wanted) {
      for (const auto& each : squares) unit.squares.merge(each);
    }
    add(rank.counters.reduced, (members - 1) * flat.part.size() * size);
  }
}

void ReduceOperation::fetch_sums() {
  Unit& unit = *unit_;
  Rank& rank = unit.rank();
  const uint64_t members = static_cast<uint64_t>(channel_.size());
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    for (int m = 0; m < channel_.size(); ++m) {
      if (m == channel_.index()) continue;
      const Range part = shard_range(flat.desc.elements, static_cast<uint64_t>(m), members);
      const uint64_t offset = unit.slot(m).sum_offset[f].load(std::memory_order_relaxed);
      const std::byte* from = channel_.memory(m, offset + part.begin * sizeof(float));
      rank.threads.for_range(
          part.begin, part.end, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
            // Of f32 buckets, which are the sums too, peers have read all.
            kernels::hand_over(flat.sum + begin, from + (begin - part.begin) * sizeof(float),
                               (end - begin) * sizeof(float));
          });
      add(rank.counters.reduced, part.size() * sizeof(float));
    }
  }
}

void ReduceOperation::consume() {
  unit_->own_slot().consumed.store(reduction_, std::memory_order_seq_cst);
  channel_.transport().ring();
}

Status ReduceOperation::end() {
  Unit& unit = *unit_;
  if (unit.bucket != nullptr) {
    unit.bucket->held = false;
    unit.bucket = nullptr;
  }
  unit.sum_started = !options_.boundary;
  return unit.enter(options_.boundary ? GradientState::ready : GradientState::partial);
}

std::vector<int> ReduceOperation::missing() const {
  if (unit_->remote()) return awaited(channel_, batch_.get());
  switch (stage_) {
    case Stage::contributing:
      return unit_->behind(reduction_, &UnitSlot::contributed);
    case Stage::sharing:
      return unit_->behind(reduction_, &UnitSlot::summed);
    case Stage::parting:
      return unit_->behind(reduction_, &UnitSlot::consumed);
  }
  return {};
}

std::string ReduceOperation::describe() const {
  return fmt::format("reduce of unit '{}'", unit_->name());
}

}  // namespace meron
