// SPDX-License-Identifier: Apache-2.0
#include "gradient/open_bucket.h"

#include <fmt/format.h>

#include <algorithm>

#include "gradient/on_host.h"

namespace meron {

OpenBucketOperation::OpenBucketOperation(std::shared_ptr<Unit> unit, Deadline deadline)
    : Operation(unit->channel(), deadline), unit_(std::move(unit)) {}

Result<bool> OpenBucketOperation::advance() {
  Gradient& gradient = unit_->gradient();
  waiting_for_ = nullptr;
  switch (gradient.state()) {
    case GradientState::filling:
      return true;
    case GradientState::reducing:
      return false;  // this rank's own reduction must end first
    case GradientState::ready:
      return Error(MERON_E_STATE,
                   fmt::format("the reduced gradient of unit '{}' was not used", unit_->name()),
                   "step the optimizer, or discard the gradient, before the next one")
          .on(unit_->name());
    case GradientState::empty:
    case GradientState::partial:
      if (gradient.finishing) return false;  // peers have not called: what is summed is not final
      break;
  }
  MERON_ASSIGN(const bool may, may_write());
  if (!may) return false;
  // A bucket of full gradients holds the earlier micro-batches; any other is empty.
  const bool keeps = gradient.on_host() != nullptr && !is_sharded(unit_->rank().plan.gradient);
  gradient.adds = keeps && gradient.state() == GradientState::partial;
  if (!gradient.adds) {
    std::fill(gradient.fresh.begin(), gradient.fresh.end(), true);
    if (keeps) gradient.on_host()->narrow();
  }
  MERON_TRY(gradient.enter(GradientState::filling));
  return true;
}

Result<bool> OpenBucketOperation::may_write() {
  const Gradient& gradient = unit_->gradient();
  const GradientOnHost* const memory = gradient.on_host();
  if (memory == nullptr) return true;  // the device works in stream order
  if (is_sharded(unit_->rank().plan.gradient)) return take_from_ring();
  if (memory->bucket_read(gradient.reductions, gradient.between)) return true;
  wait_for(gradient, gradient.reductions, gradient.between);
  return false;
}

void OpenBucketOperation::wait_for(const Gradient& user, uint64_t reduction, bool between) {
  waiting_for_ = &user;
  waiting_reduction_ = reduction;
  waiting_between_ = between;
}

// Allocates a buffer of the ring's size and releases `old`. Releases the lock meanwhile.
Result<Buffer> OpenBucketOperation::replace(const Buffer& old) {
  Rank& rank = unit_->rank();
  GradientRing& ring = rank.ring;
  ring.growing = true;
  const uint64_t bytes = ring.bytes();
  Result<Buffer> buffer = [&] {
    const Recess recess;
    return rank.arena().allocate(bytes, MemoryKind::gradient,
                                 fmt::format("a gradient bucket for unit '{}'", unit_->name()));
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
}

Result<bool> OpenBucketOperation::take_from_ring() {
  GradientRing& ring = unit_->rank().ring;
  auto& buckets = ring.buckets();
  // Another thread is allocating a bucket.
  if (ring.growing) return false;
  while (buckets.size() < unit_->rank().plan.gradient.buckets) {
    MERON_ASSIGN(const Buffer buffer, replace({}));
    buckets.push_back({buffer});
  }
  const auto free = [](const GradientRing::Bucket& bucket) {
    return bucket.last_user == nullptr ||
           bucket.last_user->on_host()->bucket_read(bucket.last_reduction, bucket.between);
  };
  GradientRing::Bucket* chosen = nullptr;
  uint64_t first = 0;  // turn of the bucket that this rank waits for
  // Prefers the free bucket that was used last, because it is still in this core's cache.
  for (GradientRing::Bucket& bucket : buckets) {
    if (bucket.held) continue;
    if (free(bucket)) {
      if (chosen == nullptr || bucket.turn > chosen->turn) chosen = &bucket;
    } else if (waiting_for_ == nullptr || bucket.turn < first) {
      wait_for(*bucket.last_user, bucket.last_reduction, bucket.between);
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
  unit_->gradient().on_host()->take(*chosen);
  return true;
}

// Returns an error if no bucket can become free. The trainer still fills each one, or peers of a
// broken group may still read it.
Status OpenBucketOperation::check_hope() const {
  const auto& buckets = unit_->rank().ring.buckets();
  Status broken = Ok{};
  for (const GradientRing::Bucket& bucket : buckets) {
    const Gradient& user = *bucket.last_user;
    if (bucket.held && user.state() == GradientState::filling) continue;
    Status status = user.unit().channel().status();
    if (status.ok()) return Ok{};
    broken = std::move(status);
  }
  MERON_TRY(std::move(broken));
  return Error(MERON_E_STATE,
               fmt::format("all {} gradient buckets are being filled (one by unit '{}')",
                           buckets.size(), buckets.front().last_user->unit().name()),
               "begin the reduction of a unit before the gradient of the next, or raise the "
               "plan's gradient_buckets")
      .on(unit_->name());
}

std::vector<int> OpenBucketOperation::missing() const {
  if (waiting_for_ == nullptr) return {};
  return waiting_for_->on_host()->bucket_readers(waiting_reduction_, waiting_between_);
}

// All units of the rank share its buckets, so the last user may belong to another group.
Channel& OpenBucketOperation::missing_in() const {
  return waiting_for_ != nullptr ? waiting_for_->unit().channel() : channel_;
}

std::shared_ptr<Operation> OpenBucketOperation::behind() const {
  const Gradient& gradient = unit_->gradient();
  if (gradient.state() == GradientState::reducing) return gradient.reduction.lock();
  if (gradient.finishing) return gradient.finish.lock();
  if (waiting_for_ != nullptr || !is_sharded(unit_->rank().plan.gradient)) return nullptr;
  for (const GradientRing::Bucket& bucket : unit_->rank().ring.buckets()) {
    if (!bucket.held || bucket.last_user->state() != GradientState::reducing) continue;
    return bucket.last_user->reduction.lock();
  }
  return nullptr;
}

std::string OpenBucketOperation::describe() const {
  return fmt::format("wait for the gradient bucket of unit '{}'", unit_->name());
}

Status check_filling(const Unit& unit) {
  if (unit.gradient().state() == GradientState::filling) return Ok{};
  return Error(MERON_E_STATE,
               fmt::format("the reduction of unit '{}' has begun meanwhile", unit.name()),
               "let one thread work on a unit's gradient")
      .on(unit.name());
}

}  // namespace meron
