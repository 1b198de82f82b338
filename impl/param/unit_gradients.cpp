// SPDX-License-Identifier: Apache-2.0
// The memory of a unit's gradients: promised when the unit is made, real from the first one on. A
// unit that is only loaded, gathered or saved never takes it.
#include <fmt/format.h>

#include <utility>

#include "param/resident_gradient.h"
#include "param/unit.h"
#include "plan/predict.h"

namespace meron {

Result<std::byte*> Unit::promise_gradient(uint64_t bytes, const char* what, uint64_t* offset) {
  const auto take = [&] {
    const Recess recess;  // while the host is asked: no other thread has the unit yet
    return rank_.arena().promise(bytes, MemoryKind::gradient,
                                 fmt::format("{} of unit '{}'", what, name_));
  };
  MERON_ASSIGN(const Buffer buffer, take());
  buffers_.push_back(buffer);
  promised_.push_back(buffer);
  if (offset != nullptr) *offset = buffer.offset;
  return buffer.data;
}

Status Unit::reserve_gradients() {
  // Ranks whose devices are not joined exchange by the host, which the device then reads.
  if (rank_.plan.gradient.tier == Tier::device && joined_on_device()) {
    if (!trainable()) return Ok{};
    MERON_ASSIGN(resident_gradient_, ResidentGradient::create(*this));
    return Ok{};
  }
  const bool whole = !is_sharded(rank_.plan.gradient);
  uint64_t ring_bytes = 0;
  for (size_t f = 0; f < flats_.size(); ++f) {
    Flat& flat = flats_[f];
    if (!flat.desc.trainable) continue;
    const DType type = gradient_type(flat);
    const uint64_t bucket_bytes = flat.desc.elements * size_of(type);
    const uint64_t exchange =
        exchange_bytes(rank_.plan, {flat.desc}, static_cast<uint64_t>(axes_.index()), axes_.mesh);
    ring_bytes += round_up(bucket_bytes, kPage) + exchange;
    uint64_t bucket_offset = 0;
    if (whole) {
      MERON_ASSIGN(flat.bucket,
                   promise_gradient(bucket_bytes, "the gradient bucket", &bucket_offset));
      for (auto& offsets : own_slot().bucket_offset) {
        offsets[f].store(bucket_offset, std::memory_order_relaxed);
      }
      uint64_t exchange_offset = 0;
      MERON_ASSIGN(flat.exchange,
                   promise_gradient(exchange, "what replicas exchange", &exchange_offset));
      for (auto& offsets : own_slot().exchange_offset) {
        offsets[f].store(exchange_offset, std::memory_order_relaxed);
      }
    }
    // Saved and loaded with the values, so it is real at once.
    if (axes_.replicas() && rank_.plan.gradient.codec.feedback) {
      MERON_ASSIGN(std::byte* const residual,
                   allocate(flat.row.size() * sizeof(float), MemoryKind::gradient,
                            "the feedback of the gradient"));
      flat.residual = reinterpret_cast<float*>(residual);
    }
    if (whole && type == DType::f32) {
      flat.sum = reinterpret_cast<float*>(flat.bucket) + flat.summed.begin;
      own_slot().sum_offset[f].store(bucket_offset + flat.summed.begin * sizeof(float),
                                     std::memory_order_relaxed);
    } else {
      uint64_t offset = 0;
      MERON_ASSIGN(std::byte* const sum, promise_gradient(flat.summed.size() * sizeof(float),
                                                          "the reduced gradient", &offset));
      flat.sum = reinterpret_cast<float*>(sum);
      own_slot().sum_offset[f].store(offset, std::memory_order_relaxed);
    }
  }
  if (!whole) rank_.ring.require(ring_bytes);
  return Ok{};
}

Status Unit::provide_gradients() {
  if (promised_.empty()) return Ok{};
  const std::vector<Buffer> promised = promised_;
  const auto provide = [&]() -> Status {
    const Recess recess;  // while the host gives it: other threads wait for their turn
    for (const Buffer& buffer : promised) {
      MERON_TRY(rank_.arena().provide(buffer, fmt::format("the gradients of unit '{}'", name_)));
    }
    return Ok{};
  };
  MERON_TRY(provide());
  pin_gradients();
  promised_.clear();
  return Ok{};
}

void Unit::pin_gradients() {
  if (!rank_.device || is_sharded(rank_.plan.gradient)) return;
  for (const Flat& flat : flats_) {
    if (flat.bucket == nullptr) continue;
    rank_.pin(flat.bucket, flat.desc.elements * size_of(gradient_type(flat)));
  }
}

}  // namespace meron
