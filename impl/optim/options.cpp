// SPDX-License-Identifier: Apache-2.0
#include "optim/options.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/hash.h"

namespace meron {
namespace {

Error refuse(const char* name, double value, const char* rule) {
  return Error(MERON_E_ARGUMENT, fmt::format("{} is {}", name, value), fmt::format("give {}", rule))
      .on(name);
}

bool finite_at_least(double value, double least) {
  return std::isfinite(value) && value >= least;
}

bool fraction(double value) {
  return value >= 0.0 && value < 1.0;
}

uint64_t combine(uint64_t hash, double value) {
  return hash_combine(hash, mix(std::bit_cast<uint64_t>(value)));
}

bool keeps_momentum(const GroupOptions& group) {
  return group.beta1 != 0.0;
}

}  // namespace

Status validate(const OptimizerOptions& options, const GroupOptions& group) {
  if (!finite_at_least(group.learning_rate, 0.0)) {
    return refuse("learning_rate", group.learning_rate, "a finite number of at least 0");
  }
  if (!fraction(group.beta1)) return refuse("beta1", group.beta1, "0 <= beta1 < 1");
  if (!fraction(group.beta2)) return refuse("beta2", group.beta2, "0 <= beta2 < 1");
  // The update is in f32, where 1e-46 is 0.
  const auto epsilon = static_cast<float>(group.epsilon);
  if (!(epsilon > 0.0f) || !std::isfinite(epsilon)) {
    return refuse("epsilon", group.epsilon, "a number that is finite and above 0 as f32");
  }
  if (!finite_at_least(group.weight_decay, 0.0)) {
    return refuse("weight_decay", group.weight_decay, "a finite number of at least 0");
  }
  if (!finite_at_least(group.lr_decay, 0.0) ||
      (options.rule != UpdateRule::adagrad && group.lr_decay != 0.0)) {
    return refuse("lr_decay", group.lr_decay,
                  "a finite number of at least 0 to Adagrad, and 0 to others");
  }
  if (options.rule == UpdateRule::sgd && keeps_momentum(group) != keeps_momentum(options.group)) {
    return refuse("beta1", group.beta1,
                  "a momentum to all groups of SGD or to none: the others' states exist already");
  }
  return Ok{};
}

Status validate(const OptimizerOptions& options) {
  MERON_TRY(validate(options, options.group));
  if (!finite_at_least(options.max_norm, 0.0)) {
    return refuse("max_norm", options.max_norm, "a finite number, 0 for no clipping");
  }
  const bool sgd = options.rule == UpdateRule::sgd;
  if (!fraction(options.dampening) || (!sgd && options.dampening != 0.0)) {
    return refuse("dampening", options.dampening, "0 <= dampening < 1 to SGD, and 0 to others");
  }
  if (options.nesterov && (!sgd || !keeps_momentum(options.group) || options.dampening != 0.0)) {
    return refuse("nesterov", 1.0, "it to SGD with a momentum (beta1) and no dampening");
  }
  return Ok{};
}

uint32_t states_of(const OptimizerOptions& options) {
  return static_cast<uint32_t>(kernels::state_count(options.rule, options.group.beta1));
}

int index_of(const OptimizerOptions& options, OptimizerState state) {
  const kernels::StateKind kind = state == OptimizerState::exp_avg_sq ? kernels::StateKind::square
                                                                      : kernels::StateKind::average;
  for (uint32_t index = 0; index < states_of(options); ++index) {
    if (kernels::state_kind(options.rule, index) == kind) return static_cast<int>(index);
  }
  return -1;
}

uint64_t hash_of(const GroupOptions& group) {
  uint64_t hash = 0;
  for (const double value : {group.learning_rate, group.beta1, group.beta2, group.epsilon,
                             group.weight_decay, group.lr_decay}) {
    hash = combine(hash, value);
  }
  return hash;
}

uint64_t hash_of(const OptimizerOptions& options) {
  uint64_t hash = hash_combine(hash_of(options.group), static_cast<uint64_t>(options.rule));
  for (const double value : {options.max_norm, options.dampening, options.nesterov ? 1.0 : 0.0}) {
    hash = combine(hash, value);
  }
  return hash;
}

}  // namespace meron
