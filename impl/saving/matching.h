// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint give which states of the units, and what does not fit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "saving/source_names.h"
#include "state/unit_state.h"

namespace meron {

// Names of states as people read them, each list sorted: "exp_avg of h.0.w".
struct Differences {
  std::vector<std::string> missing;     // the units have them, or the caller reads them; the
                                        // checkpoint does not have them
  std::vector<std::string> unexpected;  // the checkpoint has them
  std::vector<std::string> mismatched;  // with both shapes
  std::vector<std::string> unmapped;    // the mapping names them; the checkpoint lacks the tensors
  std::vector<std::string> unknown;     // the mapping has them; no unit has such a param

  bool any() const {
    return !missing.empty() || !unexpected.empty() || !mismatched.empty() || !unmapped.empty() ||
           !unknown.empty();
  }
  // For messages: at most ten of each.
  std::string text() const;
};

// A tensor of a checkpoint, and where in the param it begins.
struct SourceTensor {
  const checkpoint::Tensor* tensor = nullptr;
  uint64_t first = 0;  // element of the param
};

class Matching {
 public:
  // `values_only`: states of optimizers are not looked for. The same on all ranks. `manifest` must
  // stay.
  Matching(const checkpoint::Manifest& manifest, std::span<const UnitState> units, bool values_only,
           const SourceNames& names = {});

  const Differences& differences() const { return differences_; }
  // The source of a state of a param, ascending; empty: it is missing. The source of f32 values is
  // the master that was saved, and a master from values, where the checkpoint has no more.
  std::span<const SourceTensor> source(const Param& param, StateKind kind) const;
  // Residuals that a replica of so many takes over: added up, they keep what codecs have lost,
  // however many replicas there were.
  std::vector<SourceTensor> residuals(const Param& param, uint64_t replica,
                                      uint64_t replicas) const;

 private:
  const checkpoint::Tensor* find(std::string_view kind, std::string_view name) const;
  // Of the tensors that make a param.
  std::vector<std::string> names_of(const std::string& param) const;
  // All tensors of a param, or none.
  std::vector<SourceTensor> find_all(std::string_view kind, const Param& param) const;
  std::vector<SourceTensor> choose(const Param& param, StateKind kind) const;
  void match(const Param& param, StateKind kind, std::vector<const checkpoint::Tensor*>* used);
  void note_rest(const checkpoint::Manifest& manifest, std::span<const UnitState> units,
                 std::vector<const checkpoint::Tensor*> used);

  std::map<std::pair<std::string_view, std::string_view>, const checkpoint::Tensor*> tensors_;
  std::map<std::pair<const Param*, StateKind>, std::vector<SourceTensor>> sources_;
  bool values_only_;
  SourceNames names_;
  Differences differences_;
};

}  // namespace meron
