// SPDX-License-Identifier: Apache-2.0
// How the ranks save together: each writes its files in a temporary directory, and when all have,
// it is given its name (save_folder.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/staging.h"
#include "saving/exchange.h"
#include "saving/layout.h"
#include "state/unit_state.h"

namespace meron {

// The progress of a rank's save, for other threads.
struct SaveWatch {
  std::atomic<uint64_t> total{0};    // bytes of its files; 0: not known yet
  std::atomic<uint64_t> copied{0};   // of these, copied from the units and the caller's tensors
  std::atomic<uint64_t> written{0};  // of them, in the files
  // If set, this rank's save fails soon, with MERON_E_CANCELLED, and so does that of all ranks. Has
  // no effect once all have written.
  std::atomic<bool> cancelled{false};
};

// The directory that a save makes, and what it does to those beside it.
struct SaveTarget {
  std::string root;             // directory of checkpoints
  bool per_node = false;        // each node has a `root` of its own
  std::vector<int> nodes = {};  // with that, by rank: its node
  std::string name;
  uint64_t keep = 0;  // complete checkpoints that stay; 0: all
  bool overwrite = false;
};

// The checkpoint that a run saved or loaded last.
struct RunHistory {
  checkpoint::History last;  // its id is empty before the first
  bool loaded = false;       // rather than saved
  // From which values alone were loaded since then, as a trainer does that restores its optimizers
  // itself. Counts as loaded by saves to the directory that has it. Its id is empty for none.
  checkpoint::History values = {};
};

struct SaveOptions {
  SaveTarget target;
  SaveLayout::Options what = {};
  std::string mapping = {};  // the caller's text of `what.names`; empty: params keep theirs
  uint64_t step = 0;
  std::string plan;        // JSON text of the plan
  std::string extra = {};  // the caller's JSON text, an object, or empty
  // The caller's own, or why this rank cannot give them: then all ranks report it.
  Result<std::vector<GivenTensor>> tensors = std::vector<GivenTensor>();
  std::vector<checkpoint::Optimizer> optimizers = {};
  int64_t timeout_ns = -1;  // of one transfer
  // Receives, where a directory was made, what did not succeed after the commit and need not. May
  // be empty.
  std::function<void(const std::string&)> warn = {};
  std::shared_ptr<SaveWatch> watch = std::make_shared<SaveWatch>();
  // Changed when the save succeeds. Null: what is saved is of no run, and gets no history.
  std::shared_ptr<RunHistory> run = nullptr;
};

// Blocks: on the drive, and on all ranks. Any failure is every rank's, names the rank, and leaves
// the checkpoints that were there; only a broken group ends it on one rank alone. `copied` is
// called once this rank has read all states, also if it fails.
Status save(Exchange& exchange, std::span<const UnitState> units, const SaveOptions& options,
            const std::shared_ptr<checkpoint::Staging>& staging,
            const std::function<void()>& copied);

}  // namespace meron
