// SPDX-License-Identifier: Apache-2.0
// How the ranks load together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "saving/exchange.h"
#include "saving/matching.h"

namespace meron {

struct LoadOptions {
  std::string root;  // directory of checkpoints, or one of them
  std::string name;  // empty: the newest complete one
  bool strict = true;
  bool values_only = false;
  bool rank0_only = false;                 // only rank 0 sees the files
  bool per_node = false;                   // each node has a `root` of its own
  std::vector<int> nodes = {};             // with that, by rank: its node
  std::string mapping = {}, claimed = {};  // SourceNames::parse()
  int64_t timeout_ns = -1;                 // of one transfer
};

struct LoadReport {
  checkpoint::Checkpoint checkpoint;  // `skipped` only on rank 0
  Differences differences;
  uint64_t bytes_read = 0;  // by this rank
};

// Opens an update of a unit, waits for it, calls `fill` and publishes. Every rank's, in one order.
using UpdateUnit = std::function<Status(const UnitState&, const std::function<Status()>& fill)>;

// Blocks: on the drive, and on all ranks. Before anything changes all ranks have agreed that
// tensors fit and files are there; such an error is every rank's and leaves the states as they
// were. After that an error breaks the group: states are of two checkpoints.
Result<LoadReport> load(Exchange& exchange, std::span<const UnitState> units,
                        const LoadOptions& options, const SourceNames& names,
                        const UpdateUnit& update,
                        const std::function<Status(const checkpoint::Manifest&)>& check);

}  // namespace meron
