// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
// meron/cpp/rules.hpp: optimizers, by their update rule.
#ifndef MERON_CPP_RULES_HPP
#define MERON_CPP_RULES_HPP

#include "meron/cpp/optimizer.hpp"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Creates an optimizer and its states (zero) for the trainable params of some units: the states
// of the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have
// 16 bits. A master begins with the param's value at this call, and later updates write it too,
// so initial values may be written before or after. States on tier nvme are written once here,
// so that steps only overwrite existing data; if that takes long, the log reports the progress.
// Collective over the units' group. Blocks as `barrier_begin`; while a save copies states,
// without a deadline; also on this rank's drive if states are on nvme. Throws MERON_E_ARGUMENT,
// MERON_E_HANDLE, MERON_E_STALE, MERON_E_STATE, MERON_E_DUPLICATE, MERON_E_NO_MEMORY,
// MERON_E_IO, MERON_E_NOT_FOUND, MERON_E_NO_SPACE, MERON_E_TIMEOUT, MERON_E_PEER_DEAD,
// MERON_E_PEER_CLOSED, MERON_E_MISMATCH, MERON_E_ABORTED, MERON_E_AUTH, MERON_E_VERSION.
[[nodiscard]] inline Optimizer adamw(const UnitList& units, const AdamW& rule = {}) {
  return Optimizer::make(units, rule.raw());
}
[[nodiscard]] inline Optimizer adam(const UnitList& units, const Adam& rule = {}) {
  return Optimizer::make(units, rule.raw());
}
[[nodiscard]] inline Optimizer adagrad(const UnitList& units, const Adagrad& rule = {}) {
  return Optimizer::make(units, rule.raw());
}
[[nodiscard]] inline Optimizer lion(const UnitList& units, const Lion& rule = {}) {
  return Optimizer::make(units, rule.raw());
}
[[nodiscard]] inline Optimizer sgd(const UnitList& units, const Sgd& rule = {}) {
  return Optimizer::make(units, rule.raw());
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_RULES_HPP
