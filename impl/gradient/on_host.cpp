// SPDX-License-Identifier: Apache-2.0
#include "gradient/on_host.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "plan/predict.h"

namespace meron {

GradientOnHost::GradientOnHost(Gradient& gradient)
    : gradient_(gradient),
      place_(gradient.unit().rank().threads),
      flats_(gradient.unit().flats().size()) {}

GradientOnHost::~GradientOnHost() = default;

Result<std::unique_ptr<GradientOnHost>> GradientOnHost::create(Gradient& gradient) {
  auto memory = std::make_unique<GradientOnHost>(gradient);
  Status reserved = memory->reserve();
  if (reserved.ok()) return memory;
  {
    const Recess recess;  // no other thread has the unit
    for (const Buffer& buffer : memory->buffers_) memory->unit().rank().arena().release(buffer);
  }
  return std::move(reserved).error();
}

Result<Buffer> GradientOnHost::promise(uint64_t bytes, const char* what, uint64_t room) {
  Rank& rank = unit().rank();
  const auto take = [&] {
    const Recess recess;  // no other thread has the unit yet
    return rank.arena().promise(bytes, MemoryKind::gradient,
                                fmt::format("{} of unit '{}'", what, unit().name()), room);
  };
  MERON_ASSIGN(const Buffer buffer, take());
  buffers_.push_back(buffer);
  promised_.push_back(buffer);
  return buffer;
}

// True if the bucket grows in place. A sum that has all elements takes the micro-batches instead.
bool GradientOnHost::widens_in_place(const Flat& flat) const {
  return widens(unit().rank().plan, flat.desc.dtype) && flat.summed.size() != flat.desc.elements;
}

Status GradientOnHost::reserve_whole(size_t index, uint64_t exchange) {
  const Flat& flat = unit().flats()[index];
  const uint64_t bytes = flat.desc.elements * size_of(gradient_.type_of(flat));
  const uint64_t room = widens_in_place(flat) ? flat.desc.elements * sizeof(float) : 0;
  Buffers& buffers = flats_[index];
  MERON_ASSIGN(buffers.first, promise(bytes, "the gradient bucket", room));
  buffers.bucket = buffers.first.data;
  for (auto& offsets : unit().own_slot().offsets.buckets) {
    offsets[index].store(buffers.first.offset, std::memory_order_relaxed);
  }
  MERON_ASSIGN(const Buffer rows, promise(exchange, "what replicas exchange"));
  buffers.exchange = rows.data;
  for (auto& offsets : unit().own_slot().offsets.rows) {
    offsets[index].store(rows.offset, std::memory_order_relaxed);
  }
  return Ok{};
}

Status GradientOnHost::reserve() {
  Unit& unit = this->unit();
  Rank& rank = unit.rank();
  const Axes& axes = unit.axes();
  const bool whole = !is_sharded(rank.plan.gradient);
  uint64_t ring_bytes = 0;
  for (size_t f = 0; f < flats_.size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    Buffers& buffers = flats_[f];
    const DType type = gradient_.type_of(flat);
    const uint64_t bucket_bytes = flat.desc.elements * size_of(type);
    const uint64_t exchange =
        exchange_bytes(rank.plan, {flat.desc}, static_cast<uint64_t>(axes.index()), axes.mesh);
    ring_bytes += round_up(bucket_bytes, kPage) + exchange;
    if (whole) MERON_TRY(reserve_whole(f, exchange));
    // Saved and loaded with the values, so it is populated at once.
    if (axes.replicas() && rank.plan.gradient.codec.feedback) {
      const auto take = [&] {
        const Recess recess;
        return rank.arena().allocate(
            flat.row.size() * sizeof(float), MemoryKind::gradient,
            fmt::format("the feedback of the gradient of unit '{}'", unit.name()));
      };
      MERON_ASSIGN(const Buffer residual, take());
      buffers_.push_back(residual);
      buffers.residual = reinterpret_cast<float*>(residual.data);
    }
    uint64_t offset = 0;
    if (whole && type == DType::f32) {
      buffers.sum = reinterpret_cast<float*>(buffers.bucket) + flat.summed.begin;
      offset = buffers.first.offset + flat.summed.begin * sizeof(float);
    } else {
      MERON_ASSIGN(const Buffer sum,
                   promise(flat.summed.size() * sizeof(float), "the reduced gradient"));
      buffers.sum = reinterpret_cast<float*>(sum.data);
      offset = sum.offset;
    }
    unit.own_slot().offsets.sums[f].store(offset, std::memory_order_relaxed);
  }
  if (!whole) rank.ring.require(ring_bytes);
  return Ok{};
}

Status GradientOnHost::provide() {
  if (promised_.empty()) return Ok{};
  Unit& unit = this->unit();
  Rank& rank = unit.rank();
  const std::vector<Buffer> promised = promised_;
  const auto provide = [&]() -> Status {
    const Recess recess;  // other threads wait for their turn
    for (const Buffer& buffer : promised) {
      MERON_TRY(
          rank.arena().provide(buffer, fmt::format("the gradients of unit '{}'", unit.name())));
    }
    return Ok{};
  };
  MERON_TRY(provide());
  if (rank.device && !is_sharded(rank.plan.gradient)) {
    for (size_t f = 0; f < flats_.size(); ++f) {
      const Flat& flat = unit.flats()[f];
      if (!flat.desc.trainable) continue;
      rank.pin(flats_[f].first.data, flats_[f].first.bytes);
    }
  }
  promised_.clear();
  return Ok{};
}

void GradientOnHost::give_back() {
  Rank& rank = unit().rank();
  const bool whole = !is_sharded(rank.plan.gradient);
  for (Buffers& buffers : flats_) {
    if (rank.device && whole && buffers.first) rank.device->unpin(buffers.first.data);
    buffers = {};
  }
  promised_.clear();
  const Recess recess;  // no other thread knows the unit
  for (const Buffer& buffer : std::exchange(buffers_, {})) rank.arena().release(buffer);
}

// ---- A bucket of the ring ----------------------------------------------------------------------

void GradientOnHost::take(GradientRing::Bucket& bucket) {
  Unit& unit = this->unit();
  const Axes& axes = unit.axes();
  bucket.held = true;
  bucket.last_user = &gradient_;
  ring_ = &bucket;
  auto& offsets = unit.own_slot().offsets.buckets[(gradient_.reductions + 1) % 2];
  auto& exchange_offsets = unit.own_slot().offsets.rows[(gradient_.reductions + 1) % 2];
  uint64_t displacement = 0;
  for (size_t f = 0; f < flats_.size(); ++f) {
    const Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    flats_[f].bucket = bucket.buffer.data + displacement;
    offsets[f].store(bucket.buffer.offset + displacement, std::memory_order_relaxed);
    displacement += round_up(flat.desc.elements * size_of(gradient_.type_of(flat)), kPage);
    flats_[f].exchange = bucket.buffer.data + displacement;
    exchange_offsets[f].store(bucket.buffer.offset + displacement, std::memory_order_relaxed);
    displacement += exchange_bytes(unit.rank().plan, {flat.desc},
                                   static_cast<uint64_t>(axes.index()), axes.mesh);
  }
  zero_padding();
}

void GradientOnHost::release_bucket() {
  if (ring_ != nullptr) std::exchange(ring_, nullptr)->held = false;
}

void GradientOnHost::note_reduction() {
  if (ring_ == nullptr) return;
  ring_->last_reduction = gradient_.reductions;
  ring_->between = gradient_.between;
}

bool GradientOnHost::bucket_read(uint64_t reduction, bool between) const {
  const Unit& unit = this->unit();
  if (between && rows_leave_bucket(unit)) {
    return unit.reached(unit.local_shards(), reduction, &UnitSlot::shard_ready);
  }
  return unit.reached(unit.local_shards(), reduction, &UnitSlot::consumed) &&
         (!between || unit.reached(unit.local_replicas(), reduction, &UnitSlot::consumed));
}

std::vector<int> GradientOnHost::bucket_readers(uint64_t reduction, bool between) const {
  const Unit& unit = this->unit();
  if (between && rows_leave_bucket(unit)) {
    return unit.behind(unit.local_shards(), reduction, &UnitSlot::shard_ready);
  }
  auto readers = unit.behind(unit.local_shards(), reduction, &UnitSlot::consumed);
  if (!between) return readers;
  for (const int m : unit.behind(unit.local_replicas(), reduction, &UnitSlot::consumed)) {
    readers.push_back(m);
  }
  return readers;
}

// ---- Addresses ---------------------------------------------------------------------------------

GradientOnHost::Region GradientOnHost::region_of(Step step, size_t flat,
                                                 const std::byte* data) const {
  const Buffers& buffers = flats_[flat];
  if (step == Step::shards) {
    return {buffers.bucket,
            [](const UnitSlot& slot, uint64_t reduction, size_t f) -> const std::atomic<uint64_t>& {
              return slot.offsets.buckets[reduction % 2][f];
            }};
  }
  // The other steps exchange sums, plain or encoded.
  const auto* const sum = reinterpret_cast<const std::byte*>(buffers.sum);
  const uint64_t sum_bytes = unit().flats()[flat].summed.size() * sizeof(float);
  if (data >= sum && data < sum + sum_bytes) {
    return {sum, [](const UnitSlot& slot, uint64_t, size_t f) -> const std::atomic<uint64_t>& {
              return slot.offsets.sums[f];
            }};
  }
  return {buffers.exchange,
          [](const UnitSlot& slot, uint64_t reduction, size_t f) -> const std::atomic<uint64_t>& {
            return slot.offsets.rows[reduction % 2][f];
          }};
}

float* GradientOnHost::row(size_t flat) const {
  if (sums_apart(unit())) return reinterpret_cast<float*>(flats_[flat].exchange);
  const Flat& target = unit().flats()[flat];
  return flats_[flat].sum + (target.row.begin - target.summed.begin);
}

uint64_t GradientOnHost::encoded_begin(size_t flat) const {
  if (!sums_apart(unit())) return 0;
  return round_up(unit().flats()[flat].row.size() * sizeof(float), kPage);
}

std::byte* GradientOnHost::encoded(size_t flat, int replica) const {
  const uint64_t part =
      shard_elements(unit().flats()[flat].row.size(), unit().axes().mesh.replicas);
  return flats_[flat].exchange + encoded_begin(flat) +
         static_cast<uint64_t>(replica) *
             room_bytes(unit().rank().plan.gradient.codec, part, sizeof(float));
}

std::byte* GradientOnHost::encoded_sum(size_t flat) const {
  const uint64_t rows =
      encoded_row_room(unit().rank().plan.gradient.codec, unit().flats()[flat].row.size(),
                       unit().axes().mesh.replicas);
  return flats_[flat].exchange + encoded_begin(flat) + round_up(rows, kPage);
}

Status GradientOnHost::begin_squares(bool wanted) {
  squares_wanted_ = wanted;
  squares_.here = {};
  gradient_.squares.reset();
  return Ok{};
}

Result<bool> GradientOnHost::settled() {
  if (!std::exchange(squares_wanted_, false)) return true;
  gradient_.squares = squares_.here;
  return true;
}

Status GradientOnHost::read_feedback(size_t flat, const Range& range, std::byte* out) const {
  const float* const from = flats_[flat].residual + (range.begin - unit().flats()[flat].row.begin);
  const Recess recess(range.size() >= kInlineElements);
  std::memcpy(out, from, range.size() * sizeof(float));
  return Ok{};
}

Status GradientOnHost::write_feedback(size_t flat, const Range& range, const std::byte* data) {
  float* const to = flats_[flat].residual + (range.begin - unit().flats()[flat].row.begin);
  const Recess recess(range.size() >= kInlineElements);
  std::memcpy(to, data, range.size() * sizeof(float));
  return Ok{};
}

}  // namespace meron
