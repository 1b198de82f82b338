// SPDX-License-Identifier: Apache-2.0
#include "gradient/gradient.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "gradient/on_device.h"
#include "gradient/on_host.h"

namespace meron {

Gradient::Gradient(Unit& unit)
    : fresh(unit.params().size(), true), codec(unit.rank().plan.gradient.codec), unit_(unit) {}

Gradient::~Gradient() = default;

Status Gradient::attach(Unit& unit) {
  std::shared_ptr<Gradient> gradient(new Gradient(unit));
  if (unit.sums_on_device()) {
    MERON_ASSIGN(gradient->memory_, GradientOnDevice::create(*gradient));
  } else {
    MERON_ASSIGN(auto memory, GradientOnHost::create(*gradient));
    gradient->host_ = memory.get();
    gradient->memory_ = std::move(memory);
  }
  unit.attach(std::move(gradient));
  return Ok{};
}

Status Gradient::enter(GradientState state) {
  if (!allowed(state_, state)) {
    return forbidden_transition(unit_.name(), kGradientStateNames[static_cast<size_t>(state_)],
                                kGradientStateNames[static_cast<size_t>(state)]);
  }
  state_ = state;
  if (state == GradientState::empty) {
    fed_.present = false;
    nonfinite.reset();
  }
  return Ok{};
}

Status Gradient::close_bucket() {
  if (state_ != GradientState::filling) return Ok{};
  if (host_ != nullptr) {
    host_->note_reduction();
    host_->release_bucket();
  }
  return enter(GradientState::partial);
}

void Gradient::announce_type() {
  const uint64_t next = reductions + 1;
  auto& word = unit_.own_slot().widened[next % 2];
  const bool known = word.load(std::memory_order_relaxed) == next;
  if (known != widened) unit_.channel().announce(word, widened ? next : 0);
}

bool Gradient::keeps_feedback() const {
  for (size_t f = 0; f < unit_.flats().size(); ++f) {
    if (memory_->residual(f) != nullptr) return true;
  }
  return false;
}

Status Gradient::drop_feedback() {
  fed_.scale = 0;
  for (size_t f = 0; f < unit_.flats().size(); ++f) {
    float* const residual = memory_->residual(f);
    if (residual == nullptr) continue;
    MERON_TRY(memory_->place().zero(residual, unit_.flats()[f].row.size() * sizeof(float)));
  }
  return Ok{};
}

Status Gradient::scale_feedback(float factor) {
  if (factor == 1.0f) return Ok{};
  for (size_t f = 0; f < unit_.flats().size(); ++f) {
    if (memory_->residual(f) == nullptr) continue;
    Sum scaled;
    scaled.out = memory_->residual(f);
    scaled.accumulate = true;
    scaled.scale = factor;
    scaled.count = unit_.flats()[f].row.size();
    MERON_TRY(memory_->place().sum(scaled));
  }
  return Ok{};
}

Status Gradient::begin_exchange(float scale) {
  if (std::exchange(fed_.present, true)) return Ok{};
  const float factor = fed_.scale != 0 ? fed_.scale / scale : 1.0f;
  MERON_TRY(std::isfinite(factor) ? scale_feedback(factor) : drop_feedback());
  fed_.scale = scale;
  return Ok{};
}

Status Gradient::review_codec() {
  if (!reviews_codec()) return Ok{};
  const double limit = codec.error_limit;
  // All ranks have announced their errors of the previous exchange. Those of the current one are
  // still being announced, so one replica might see them and another not.
  if (!unit_.error_above(exchanges - 1, limit, &UnitSlot::gradient_error)) return Ok{};
  codec = {.kind = CodecKind::bf16};
  Rank& rank = unit_.rank();
  rank.notices.push_back(fmt::format(
      "the gradients of unit '{}' travel in bf16 from exchange {} on: the error of {} was above {} "
      "(this rank's: {:.3g}, worst block {:.3g})",
      unit_.name(), exchanges, name_of(rank.plan.gradient.codec.kind), limit, error.relative,
      error.worst));
  return drop_feedback();  // bf16 uses none
}

Status Gradient::check_not_lent(const char* action) const {
  if (users.loans == 0) return Ok{};
  return Error(MERON_E_STATE,
               fmt::format("the reduced gradient of unit '{}' is lent to {} DLPack tensor{}",
                           unit_.name(), users.loans, users.loans == 1 ? "" : "s"),
               fmt::format("release them before you {}", action))
      .on(unit_.name());
}

Status Gradient::check_destroyable() const {
  MERON_TRY(check_not_lent("destroy the unit"));
  const auto held = [&](const char* by, const char* advice) {
    return Error(MERON_E_STATE, fmt::format("unit '{}' {}", unit_.name(), by), advice)
        .on(unit_.name());
  };
  if (state_ == GradientState::filling) {
    return held("has a gradient that no reduction has begun for", "begin its reduction first");
  }
  if (users.clips > 0) return held("has a gradient that is being clipped", "wait for that first");
  for (const auto& begun : {reduction, finish}) {
    const auto operation = begun.lock();
    if (operation && !operation->ended()) {
      return held("is being reduced", "wait for the reduction first");
    }
  }
  if (state_ == GradientState::reducing || finishing || (host_ != nullptr && host_->downloads())) {
    return held("is being reduced", "wait for the reduction first");
  }
  return Ok{};
}

void Gradient::detach() {
  for (GradientRing::Bucket& bucket : unit_.rank().ring.buckets()) {
    if (bucket.last_user == this) bucket.last_user = nullptr;
  }
}

void Gradient::give_back() {
  if (host_ != nullptr) return host_->give_back();
  const Recess recess;  // the device may have to end its work; no other thread knows the unit
  memory_.reset();
}

}  // namespace meron
