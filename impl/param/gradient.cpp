// SPDX-License-Identifier: Apache-2.0
#include "param/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"
#include "plan/predict.h"

namespace meron {
namespace {

// A bucket of the ring served another unit before: what lies between the tensors is not zero.
void zero_padding(Unit& unit) {
  for (const auto& param : unit.params()) {
    const Flat& flat = unit.flat_of(*param);
    if (!flat.desc.trainable) continue;
    const uint64_t size = size_of(unit.gradient_type(flat));
    const uint64_t end = param->place.offset + param->count;
    std::memset(flat.bucket + end * size, 0, (round_up(end, kTensorAlign) - end) * size);
  }
}

// Copies elements `range` of the flat, of which `data` is the first.
void stage_range(Rank& rank, const Flat& flat, const Range& range, uint64_t size,
                 const std::byte* data, CopyPace::Way way) {
  std::byte* const place = flat.bucket + range.begin * size;
  rank.threads.for_range(
      0, range.size(), kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
        if (way == CopyPace::streamed) {
          kernels::hand_over(place + begin * size, data + begin * size, (end - begin) * size);
        } else {
          kernels::copy(place + begin * size, data + begin * size, (end - begin) * size);
        }
      });
}

// The first gradient of a param, in the bucket's type, into a bucket that peers read.
void stage(Unit& unit, const Flat& flat, const Param& param, const std::byte* data) {
  Rank& rank = unit.rank();
  const uint64_t size = size_of(unit.gradient_type(flat));
  const Range all{param.place.offset, param.place.offset + param.count};
  // No peer reads this rank's own shard if sums leave the bucket and are not between replicas.
  Range own{all.end, all.end};
  if (is_sharded(rank.plan.gradient) && !unit.axes().replicas()) {
    own.begin = std::clamp(flat.row.begin, all.begin, all.end);
    own.end = std::clamp(flat.row.end, own.begin, all.end);
  }
  const auto from = [&](uint64_t element) { return data + (element - all.begin) * size; };
  // First what peers wait for.
  const uint64_t theirs = all.size() - own.size();
  if (theirs != 0) {
    rank.staging_pace.run(theirs * size, [&](CopyPace::Way way) {
      for (const Range& range : {Range{all.begin, own.begin}, Range{own.end, all.end}}) {
        if (range.size() != 0) stage_range(rank, flat, range, size, from(range.begin), way);
      }
    });
  }
  if (own.size() != 0) stage_range(rank, flat, own, size, from(own.begin), CopyPace::stored);
}

}  // namespace

OpenBucketOperation::OpenBucketOperation(std::shared_ptr<Unit> unit, Deadline deadline)
    : Operation(unit->channel(), deadline), unit_(std::move(unit)) {}

Result<bool> OpenBucketOperation::advance() {
  Unit& unit = *unit_;
  waiting_for_ = nullptr;
  switch (unit.gradient_state()) {
    case GradientState::filling:
      return true;
    case GradientState::reducing:
      return false;  // this rank's own reduction must end first
    case GradientState::ready:
      return Error(MERON_E_STATE,
                   fmt::format("the reduced gradient of unit '{}' was not used", unit.name()),
                   "step the optimizer, or discard the gradient, before the next one")
          .on(unit.name());
    case GradientState::empty:
    case GradientState::partial:
      if (unit.finishing) return false;  // peers have not called yet: what is summed is not final
      break;
  }
  if (unit.resident_gradient() != nullptr) {
    std::fill(unit.fresh.begin(), unit.fresh.end(), true);
    MERON_TRY(unit.enter(GradientState::filling));
    return true;
  }
  const bool whole = !is_sharded(unit.rank().plan.gradient);
  if (whole) {
    if (!unit.bucket_read(unit.reductions, unit.between)) {
      waiting_for_ = &unit;
      waiting_reduction_ = unit.reductions;
      waiting_between_ = unit.between;
      return false;
    }
  } else {
    MERON_ASSIGN(const bool taken, take_from_ring());
    if (!taken) return false;
  }
  // A whole bucket keeps what earlier micro-batches left; a fresh one holds nothing yet.
  if (!whole || unit.gradient_state() == GradientState::empty) {
    std::fill(unit.fresh.begin(), unit.fresh.end(), true);
  }
  MERON_TRY(unit.enter(GradientState::filling));
  if (!whole) zero_padding(unit);
  return true;
}

Result<bool> OpenBucketOperation::take_from_ring() {
  Unit& unit = *unit_;
  Rank& rank = unit.rank();
  GradientRing& ring = rank.ring;
  auto& buckets = ring.buckets();
  // Another thread is getting memory for it.
  if (ring.growing) return false;
  // Puts memory in the place of `old`; while the host gives it, and the device pins it, the lock is
  // released.
  const auto replace = [&](const Buffer& old) -> Result<Buffer> {
    ring.growing = true;
    const uint64_t bytes = ring.bytes();
    Result<Buffer> buffer = [&] {
      const Recess recess;
      return rank.arena().allocate(bytes, MemoryKind::gradient,
                                   fmt::format("a gradient bucket for unit '{}'", unit.name()));
    }();
    if (buffer.ok()) {
      if (old && rank.device) rank.device->unpin(old.data);
      {
        const Recess recess;
        rank.arena().release(old);
      }
      rank.pin(buffer->data, buffer->bytes);
    }
    ring.growing = false;
    rank.transport.ring();
    return buffer;
  };
  while (buckets.size() < rank.plan.gradient_buckets) {
    MERON_ASSIGN(const Buffer buffer, replace({}));
    buckets.push_back({buffer});
  }
  const auto free = [](const GradientRing::Bucket& bucket) {
    return bucket.last_user == nullptr ||
           bucket.last_user->bucket_read(bucket.last_reduction, bucket.between);
  };
  GradientRing::Bucket* chosen = nullptr;
  uint64_t first = 0;  // turn of the bucket that is waited for
  // Of the free ones that which was used last: it is still in this core's cache.
  for (GradientRing::Bucket& bucket : buckets) {
    if (bucket.held) continue;
    if (free(bucket)) {
      if (chosen == nullptr || bucket.turn > chosen->turn) chosen = &bucket;
    } else if (waiting_for_ == nullptr || bucket.turn < first) {
      waiting_for_ = bucket.last_user;
      waiting_reduction_ = bucket.last_reduction;
      waiting_between_ = bucket.between;
      first = bucket.turn;
    }
  }
  if (chosen == nullptr) {
    MERON_TRY(check_hope());
    return false;
  }
  if (chosen->buffer.bytes < ring.bytes()) {  // a larger unit was made since
    MERON_ASSIGN(chosen->buffer, replace(chosen->buffer));
  }
  waiting_for_ = nullptr;
  chosen->turn = ++ring.turns;
  chosen->held = true;
  chosen->last_user = &unit;
  unit.bucket = chosen;
  auto& offsets = unit.own_slot().bucket_offset[(unit.reductions + 1) % 2];
  auto& exchange_offsets = unit.own_slot().exchange_offset[(unit.reductions + 1) % 2];
  uint64_t displacement = 0;
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    flat.bucket = chosen->buffer.data + displacement;
    offsets[f].store(chosen->buffer.offset + displacement, std::memory_order_relaxed);
    displacement += round_up(flat.desc.elements * size_of(unit.gradient_type(flat)), kPage);
    flat.exchange = chosen->buffer.data + displacement;
    exchange_offsets[f].store(chosen->buffer.offset + displacement, std::memory_order_relaxed);
    displacement += exchange_bytes(rank.plan, {flat.desc},
                                   static_cast<uint64_t>(unit.axes().index()), unit.axes().mesh);
  }
  return true;
}

// Whether a bucket can become free: not what the trainer itself still fills, nor what peers of a
// broken group may still read.
Status OpenBucketOperation::check_hope() const {
  const auto& buckets = unit_->rank().ring.buckets();
  Status broken = Ok{};
  for (const GradientRing::Bucket& bucket : buckets) {
    const Unit& user = *bucket.last_user;
    if (bucket.held && user.gradient_state() == GradientState::filling) continue;
    Status status = user.channel().status();
    if (status.ok()) return Ok{};
    broken = std::move(status);
  }
  MERON_TRY(std::move(broken));
  return Error(MERON_E_STATE,
               fmt::format("all {} gradient buckets are being filled (one by unit '{}')",
                           buckets.size(), buckets.front().last_user->name()),
               "begin the reduction of a unit before the gradient of the next, or raise the "
               "plan's gradient_buckets")
      .on(unit_->name());
}

std::vector<int> OpenBucketOperation::missing() const {
  if (waiting_for_ == nullptr) return {};
  return waiting_for_->bucket_readers(waiting_reduction_, waiting_between_);
}

// Buckets are the rank's: their users belong to any group.
Channel& OpenBucketOperation::missing_in() const {
  return waiting_for_ != nullptr ? waiting_for_->channel() : channel_;
}

std::shared_ptr<Operation> OpenBucketOperation::behind() const {
  const Unit& unit = *unit_;
  if (unit.gradient_state() == GradientState::reducing) return unit.reduction.lock();
  if (unit.finishing) return unit.finish.lock();
  if (waiting_for_ != nullptr || !is_sharded(unit.rank().plan.gradient)) return nullptr;
  for (const GradientRing::Bucket& bucket : unit.rank().ring.buckets()) {
    if (!bucket.held || bucket.last_user->gradient_state() != GradientState::reducing) continue;
    return bucket.last_user->reduction.lock();
  }
  return nullptr;
}

std::string OpenBucketOperation::describe() const {
  return fmt::format("wait for the gradient bucket of unit '{}'", unit_->name());
}

Status check_filling(const Unit& unit) {
  if (unit.gradient_state() == GradientState::filling) return Ok{};
  return Error(MERON_E_STATE,
               fmt::format("the reduction of unit '{}' has begun meanwhile", unit.name()),
               "let one thread work on a unit's gradient")
      .on(unit.name());
}

std::byte* gradient_place(Unit& unit, size_t param, bool overwrite) {
  const Param& target = *unit.params()[param];
  const Flat& flat = unit.flat_of(target);
  const uint64_t size = size_of(unit.gradient_type(flat));
  std::byte* place = flat.bucket + target.place.offset * size;
  const bool zero = unit.fresh[param] && !overwrite;
  unit.fresh[param] = false;
  if (!zero) return place;
  const Recess recess(target.count >= kInlineElements);
  std::memset(place, 0, target.count * size);
  return place;
}

void add_gradient(Unit& unit, size_t param, const std::byte* data, DType dtype) {
  const bool first = unit.fresh[param];
  unit.fresh[param] = false;
  put_gradient(unit, param, data, dtype, first);
}

void put_gradient(Unit& unit, size_t param, const std::byte* data, DType dtype, bool first) {
  const Param& target = *unit.params()[param];
  const Flat& flat = unit.flat_of(target);
  const DType type = unit.gradient_type(flat);
  std::byte* place = flat.bucket + target.place.offset * size_of(type);
  const Recess recess(target.count >= kInlineElements);
  if (first && type == dtype && unit.read_by_peers()) return stage(unit, flat, target, data);
  unit.rank().threads.for_range(
      0, target.count, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
        std::byte* to = place + begin * size_of(type);
        const std::byte* from = data + begin * size_of(dtype);
        if (first) {
          kernels::convert(to, kernel_type(type), from, kernel_type(dtype), end - begin);
        } else {
          kernels::accumulate(to, kernel_type(type), from, kernel_type(dtype), end - begin);
        }
      });
}

void complete_bucket(Unit& unit) {
  for (size_t i = 0; i < unit.params().size(); ++i) {
    if (unit.fresh[i] && unit.params()[i]->desc.trainable) (void)gradient_place(unit, i, false);
  }
}

size_t index_in_unit(const Unit& unit, const Param& param) {
  const auto& params = unit.params();
  const auto found = std::find_if(params.begin(), params.end(),
                                  [&](const auto& each) { return each.get() == &param; });
  return static_cast<size_t>(found - params.begin());
}

}  // namespace meron
