// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint give which states of the units, and what does not fit.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "state/unit_state.h"

namespace meron {

// Names of states as people read them, each list sorted: "exp_avg of h.0.w".
struct Differences {
  std::vector<std::string> missing;     // the units have them, the checkpoint does not
  std::vector<std::string> unexpected;  // the checkpoint has them
  std::vector<std::string> mismatched;  // with both shapes

  bool any() const { return !missing.empty() || !unexpected.empty() || !mismatched.empty(); }
  // For messages: at most ten of each.
  std::string text() const;
};

class Matching {
 public:
  // `values_only`: states of optimizers are not looked for. The same on all ranks.
  Matching(const checkpoint::Manifest& manifest, std::span<const UnitState> units,
           bool values_only);

  const Differences& differences() const { return differences_; }
  // Where a state of a param comes from; null: it is missing. Values of f32 come from the master
  // that was saved, and a master from values, where the checkpoint has no more.
  const checkpoint::Tensor* source(const Param& param, StateKind kind) const;
  // Residuals that a replica of so many takes over: added up, they keep what codecs have lost,
  // however many replicas there were.
  std::vector<const checkpoint::Tensor*> residuals(const Param& param, uint64_t replica,
                                                   uint64_t replicas) const;

 private:
  const checkpoint::Tensor* find(std::string_view kind, const std::string& name) const;
  const checkpoint::Tensor* choose(const Param& param, StateKind kind) const;

  std::map<std::pair<std::string_view, std::string_view>, const checkpoint::Tensor*> tensors_;
  std::map<std::pair<const Param*, StateKind>, const checkpoint::Tensor*> sources_;
  bool values_only_;
  Differences differences_;
};

}  // namespace meron
