// SPDX-License-Identifier: Apache-2.0
// The interface of saving and loading to the engine: messages between the ranks, and states under
// its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "state/unit_state.h"

namespace meron {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sends `bytes` bytes of the root to all. Waits for all ranks. Fails only if the group is broken.
  virtual Status broadcast(std::byte* data, uint64_t bytes, int root) = 0;
  // Sends `bytes` bytes of each rank, in rank order, to all.
  virtual Status gather(const std::byte* own, uint64_t bytes, std::byte* all) = 0;
  // Reports progress: peers wait longer for this rank.
  virtual void progressed() {}
  // This rank's states of the unit have been read, or it saves none: they may change.
  virtual void copied(const UnitState& /*unit*/) {}
  // Sends each rank its range of `bytes` bytes of the root. All know the ranges: `wanted` by rank.
  // Only the root passes `data`. A host receives only ranges of its ranks. For loads.
  virtual Status scatter(const std::byte* /*data*/, uint64_t /*bytes*/,
                         const std::vector<Range>& /*wanted*/, std::byte* /*out*/, int /*root*/) {
    return Error(MERON_E_INTERNAL, "a save scatters states", "please report this defect");
  }
  // UnitState::read and write under the context's lock.
  virtual Status read(const UnitState& unit, const State& state, const Range& range,
                      std::byte* out) = 0;
  virtual Status write(const UnitState& unit, const State& state, const Range& range,
                       const std::byte* data) = 0;
};

enum class Verdict {
  all_succeeded,
  some_failed,
  unknown,  // the group broke first
};
// Waits until every rank has arrived, and returns the same on all: an error names the first rank
// that failed, and the number of others. If the group breaks, the error is this rank's alone:
// `verdict`, which may be null, receives what this rank knows of the others.
Status agree(Exchange& exchange, const Status& own, Verdict* verdict = nullptr);
// Sends a text of the root, or its error, to all.
Result<std::string> share(Exchange& exchange, const Result<std::string>& own, int root = 0);
// Returns the texts of all ranks, by rank, in bounded memory beside them. If not `everywhere`, only
// on rank 0: other ranks get empty texts.
Result<std::vector<std::string>> gather_texts(Exchange& exchange, const std::string& own,
                                              bool everywhere);

}  // namespace meron
