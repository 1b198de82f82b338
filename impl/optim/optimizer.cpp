// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/reduce.h"

namespace meron {

Status validate(const AdamWOptions& options) {
  const auto refuse = [](const char* name, double value, const char* rule) {
    return Error(MERON_E_ARGUMENT, fmt::format("{} is {}", name, value),
                 fmt::format("give {}", rule))
        .on(name);
  };
  const auto fraction = [](double value) { return value >= 0.0 && value < 1.0; };
  const auto finite_at_least = [](double value, double least) {
    return std::isfinite(value) && value >= least;
  };
  if (!finite_at_least(options.learning_rate, 0.0)) {
    return refuse("learning_rate", options.learning_rate, "a finite number of at least 0");
  }
  if (!fraction(options.beta1)) return refuse("beta1", options.beta1, "0 <= beta1 < 1");
  if (!fraction(options.beta2)) return refuse("beta2", options.beta2, "0 <= beta2 < 1");
  if (!(options.epsilon > 0.0) || !std::isfinite(options.epsilon)) {
    return refuse("epsilon", options.epsilon, "a finite number above 0");
  }
  if (!finite_at_least(options.weight_decay, 0.0)) {
    return refuse("weight_decay", options.weight_decay, "a finite number of at least 0");
  }
  if (!finite_at_least(options.max_norm, 0.0)) {
    return refuse("max_norm", options.max_norm, "a finite number, 0 for no clipping");
  }
  return Ok{};
}

Optimizer::Optimizer(std::vector<std::shared_ptr<Unit>> units, const AdamWOptions& options)
    : rank_(units.front()->rank()), units_(std::move(units)), options_(options) {}

Optimizer::~Optimizer() {
  for (const auto& unit : units_) {
    unit->has_optimizer = false;
    for (Flat& flat : unit->flats()) flat.master = nullptr;
  }
  for (const Buffer& buffer : buffers_) rank_.arena().release(buffer);
}

Result<std::shared_ptr<Optimizer>> Optimizer::create(std::vector<std::shared_ptr<Unit>> units,
                                                     const AdamWOptions& options) {
  std::shared_ptr<Optimizer> optimizer(new Optimizer(std::move(units), options));
  for (const auto& unit : optimizer->units_) unit->has_optimizer = true;
  MERON_TRY(optimizer->allocate_states());
  return optimizer;
}

Result<float*> Optimizer::allocate(const Unit& unit, uint64_t elements, const char* what) {
  MERON_ASSIGN(const Buffer buffer,
               rank_.arena().allocate(elements * sizeof(float), MemoryKind::optimizer,
                                      fmt::format("{} of unit '{}'", what, unit.name())));
  buffers_.push_back(buffer);
  return reinterpret_cast<float*>(buffer.data);
}

Status Optimizer::allocate_states() {
  for (const auto& unit : units_) {
    std::vector<Moments>& moments = moments_.emplace_back(unit->flats().size());
    for (size_t f = 0; f < unit->flats().size(); ++f) {
      Flat& flat = unit->flats()[f];
      if (!flat.desc.trainable) continue;
      const uint64_t elements = flat.owned.size();
      MERON_ASSIGN(moments[f].exp_avg, allocate(*unit, elements, "the first moment"));
      MERON_ASSIGN(moments[f].exp_avg_sq, allocate(*unit, elements, "the second moment"));
      if (flat.desc.dtype == DType::f32) continue;
      MERON_ASSIGN(flat.master, allocate(*unit, elements, "the master copy"));
      kernels::convert(flat.master, kernels::Type::f32, flat.own(flat.owned.begin),
                       kernel_type(flat.desc.dtype), elements);
    }
  }
  return Ok{};
}

bool Optimizer::state(const Param& param, OptimizerState which, float** data, Range* part) {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].get() != param.unit) continue;
    Flat& flat = param.unit->flat_of(param);
    if (!flat.desc.trainable) return false;
    *part = part_of(param, flat.owned);
    const uint64_t first = param.place.offset + part->begin - flat.owned.begin;
    const Moments& moments = moments_[u][param.place.flat];
    switch (which) {
      case OptimizerState::master:
        *data = flat.master != nullptr
                    ? flat.master + first
                    : reinterpret_cast<float*>(flat.own(param.place.offset + part->begin));
        return true;
      case OptimizerState::exp_avg:
        *data = moments.exp_avg + first;
        return true;
      case OptimizerState::exp_avg_sq:
        *data = moments.exp_avg_sq + first;
        return true;
    }
  }
  return false;
}

Status StepOperation::check(const Optimizer& optimizer) {
  if (optimizer.stepping_) {
    return Error(MERON_E_STATE, "the optimizer is stepping already", "wait for that step first");
  }
  for (const auto& unit : optimizer.units_) {
    MERON_TRY(unit->check_updatable());
    if (unit->gradient_state() != GradientState::ready) {
      return Error(MERON_E_STATE,
                   fmt::format("the gradient of unit '{}' is {}, not reduced", unit->name(),
                               kGradientStateNames[static_cast<size_t>(unit->gradient_state())]),
                   "reduce every unit of the optimizer with boundary 1, and wait for it, before "
                   "the step")
          .on(unit->name());
    }
  }
  return Ok{};
}

StepOperation::StepOperation(std::shared_ptr<Optimizer> optimizer, Deadline deadline)
    : Operation(optimizer->units_.front()->channel(), deadline),
      optimizer_(std::move(optimizer)),
      learning_rate_(optimizer_->options_.learning_rate) {}

std::shared_ptr<StepOperation> StepOperation::begin(std::shared_ptr<Optimizer> optimizer,
                                                    Deadline deadline) {
  std::shared_ptr<StepOperation> step(new StepOperation(std::move(optimizer), deadline));
  step->set_stepping(true);
  return step;
}

// Where a step fails, its group is broken, and the units stay as they are.
void StepOperation::set_stepping(bool stepping) {
  optimizer_->stepping_ = stepping;
  for (const auto& unit : optimizer_->units_) unit->stepping = stepping;
}

// For a unit that was reduced before it had an optimizer.
void StepOperation::take_squares(Unit& unit) {
  unit.squares = {};
  for (Flat& flat : unit.flats()) {
    if (!flat.desc.trainable || flat.part.size() == 0) continue;
    kernels::reduce(flat.sum + (flat.part.begin - flat.summed.begin), true, nullptr, 0,
                    kernels::Type::f32, 1.0f, flat.part.size(), &unit.squares);
  }
  unit.squares_known = true;
}

// The sum of squares of this rank's parts goes into the window, exactly: the total does not depend
// on how the gradients are cut, so every world size and plan gets the same bits.
void StepOperation::share_norm() {
  static_assert(sizeof(kernels::ExactSum) <= kNormBytes);
  kernels::ExactSum squares;
  for (const auto& unit : optimizer_->units_) {
    if (!unit->squares_known) take_squares(*unit);
    squares.merge(unit->squares);
  }
  MemberBlock& own = channel_.own();
  const uint64_t last = std::max(own.norm_step[0].load(std::memory_order_relaxed),
                                 own.norm_step[1].load(std::memory_order_relaxed));
  norm_number_ = last + 1;
  std::memcpy(own.norm[norm_number_ % 2].data(), &squares, sizeof(squares));
  channel_.share(own.norm[norm_number_ % 2].data(), sizeof(squares));
  channel_.announce(own.norm_step[norm_number_ % 2], norm_number_);
  channel_.transport().ring();
}

Result<bool> StepOperation::agree_on_norm() {
  const size_t half = norm_number_ % 2;
  kernels::ExactSum total;
  for (int m = 0; m < channel_.size(); ++m) {
    if (channel_.member(m).norm_step[half].load(std::memory_order_seq_cst) < norm_number_) {
      return false;
    }
  }
  for (int m = 0; m < channel_.size(); ++m) {
    kernels::ExactSum squares;
    std::memcpy(&squares, channel_.member(m).norm[half].data(), sizeof(squares));
    total.merge(squares);
  }
  const double norm = std::sqrt(total.value());
  optimizer_->norm_ = norm;
  norm_known_ = true;
  if (!std::isfinite(norm)) {
    set_stepping(false);
    for (const auto& unit : optimizer_->units_) {
      MERON_TRY(unit->enter(GradientState::empty));
      unit->drop_feedback();
    }
    return Error(MERON_E_NONFINITE, fmt::format("the global gradient norm is {}", norm),
                 "nothing was changed and the gradients were discarded, on all ranks: skip this "
                 "step, or lower the learning rate or loss scale")
        .during("optimizer_step");
  }
  const double max_norm = optimizer_->options_.max_norm;
  // As torch.nn.utils.clip_grad_norm_: the small term keeps a zero norm from dividing.
  clip_ = max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  for (const auto& unit : optimizer_->units_) MERON_TRY(unit->release_version());
  ++optimizer_->steps_;
  channel_.transport().ring();
  return true;
}

Result<bool> StepOperation::advance() {
  if (norm_number_ == 0) share_norm();
  if (!norm_known_) {
    MERON_ASSIGN(const bool known, agree_on_norm());
    if (!known) return false;
  }
  bool moved = false;
  const auto& units = optimizer_->units_;
  while (updated_ < units.size() && units[updated_]->all_released()) {
    Unit& unit = *units[updated_];
    update(unit, updated_);
    MERON_TRY(unit.publish(false));
    MERON_TRY(unit.enter(GradientState::empty));
    ++updated_;
    moved = true;
  }
  if (moved) channel_.transport().ring();
  if (updated_ < units.size()) return false;
  set_stepping(false);
  return true;
}

void StepOperation::update(Unit& unit, size_t index) {
  const AdamWOptions& options = optimizer_->options_;
  const double t = static_cast<double>(optimizer_->steps_);
  kernels::AdamW step;
  step.lr = learning_rate_;
  step.beta1 = options.beta1;
  step.beta2 = options.beta2;
  step.eps = options.epsilon;
  step.weight_decay = options.weight_decay;
  step.bias1 = 1.0 - std::pow(options.beta1, t);
  step.bias2 = 1.0 - std::pow(options.beta2, t);
  step.grad_scale = clip_;
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    Flat& flat = unit.flats()[f];
    if (!flat.desc.trainable) continue;
    const Optimizer::Moments& moments = optimizer_->moments_[index][f];
    const uint64_t size = size_of(flat.desc.dtype);
    std::byte* values = flat.own(flat.owned.begin);
    const float* const gradient = flat.sum + (flat.owned.begin - flat.summed.begin);
    float* master = flat.master != nullptr ? flat.master : reinterpret_cast<float*>(values);
    const bool handed_over = unit.read_by_peers() && !flat.coded();
    unit.rank().threads.for_range(
        0, flat.owned.size(), kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
          kernels::adamw(step, master + begin, gradient + begin, kernels::Type::f32,
                         moments.exp_avg + begin, moments.exp_avg_sq + begin,
                         flat.master != nullptr ? values + begin * size : nullptr,
                         kernel_type(flat.desc.dtype), end - begin, handed_over);
        });
  }
}

std::vector<int> StepOperation::missing() const {
  if (!norm_known_) {
    return channel_.below(norm_number_, [&](int m) {
      return channel_.member(m).norm_step[norm_number_ % 2].load(std::memory_order_seq_cst);
    });
  }
  const auto& units = optimizer_->units_;
  if (updated_ == units.size()) return {};
  return units[updated_]->unreleased();
}

}  // namespace meron
