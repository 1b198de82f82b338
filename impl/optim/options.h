// SPDX-License-Identifier: Apache-2.0
// The update rule of an optimizer and its hyperparameters.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/cpu/update.h"

namespace meron {

// Loshchilov and Hutter, arXiv:1711.05101; Kingma and Ba, arXiv:1412.6980; Duchi, Hazan and Singer,
// JMLR 12; Chen et al., arXiv:2302.06675; SGD with momentum as torch.optim.SGD has it.
using UpdateRule = kernels::Rule;

// Hyperparameters of an optimizer group.
struct GroupOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;  // of SGD the momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double lr_decay =
      0.0;  // of Adagrad: the rate of step t is learning_rate / (1 + (t - 1) lr_decay)

  bool operator==(const GroupOptions&) const = default;
};

struct OptimizerOptions {
  UpdateRule rule = UpdateRule::adamw;
  GroupOptions group = {};  // of params that are in no other
  double max_norm = 0.0;    // 0: no clipping
  double dampening = 0.0;   // SGD's
  bool nesterov = false;    // SGD's
};
Status validate(const OptimizerOptions& options);
// Checks that `group` may belong to an optimizer with these options.
Status validate(const OptimizerOptions& options, const GroupOptions& group);

// Number of states that the rule keeps per element.
uint32_t states_of(const OptimizerOptions& options);
enum class OptimizerState : int32_t { master = 0, exp_avg = 1, exp_avg_sq = 2 };
// The index of a state among the rule's; -1: it keeps no such state.
int index_of(const OptimizerOptions& options, OptimizerState state);

// Of everything that ranks must agree on.
uint64_t hash_of(const GroupOptions& group);
uint64_t hash_of(const OptimizerOptions& options);

}  // namespace meron
