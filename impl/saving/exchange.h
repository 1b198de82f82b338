// SPDX-License-Identifier: Apache-2.0
// What saving and loading need of the engine: words between the ranks, and states under its lock.
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
  // `bytes` bytes of the root to all. Waits for all ranks. An error is that of a broken group.
  virtual Status broadcast(std::byte* data, uint64_t bytes, int root) = 0;
  // `bytes` bytes of each rank, in rank order, to all.
  virtual Status gather(const std::byte* own, uint64_t bytes, std::byte* all) = 0;
  // More of the files has been written: peers may count on more to come.
  virtual void progressed() {}
  // This rank's states of the unit have been read, or it saves none: they may change.
  virtual void copied(const UnitState& /*unit*/) {}
  // Of `bytes` bytes of the root, to each rank its range, which all know: `wanted` by rank. `data`
  // is the root's alone. What no rank of a host wants does not travel there. For loads.
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

// Every rank has come as far, well or not: the same on all of them. The first rank that failed is
// named, and how many others did.
Status agree(Exchange& exchange, const Status& own);
// A text of the root, or its error, to all.
Result<std::string> share(Exchange& exchange, const Result<std::string>& own, int root = 0);
// The texts of all ranks, by rank, in bounded memory beside them. If not `everywhere`, on rank 0
// alone: others get empty ones.
Result<std::vector<std::string>> gather_texts(Exchange& exchange, const std::string& own,
                                              bool everywhere);

}  // namespace meron
