// SPDX-License-Identifier: Apache-2.0
// The operations of the table, by name. README.md defines them.
#pragma once

#include <map>
#include <string>

#include "session.h"

namespace conformance {

using Operation = void (*)(Session& session, const Statement& statement);
using Operations = std::map<std::string, Operation>;

Operations library_operations();     // library, plans
Operations context_operations();     // contexts, counters
Operations group_operations();       // groups, collectives on arrays
Operations param_operations();       // params, units, updates
Operations gather_operations();      // gathers, DLPack
Operations training_operations();    // gradients, optimizers
Operations schedule_operations();    // schedules
Operations io_operations();          // files
Operations checkpoint_operations();  // checkpoints
Operations call_operations();        // plain calls (generated)
Operations future_operations();      // waiting, releasing

// A figure of meron_stats (generated).
struct Counter {
  uint64_t meron_stats::*field;
  bool grows;  // else it is a figure of the moment
};
Counter counter_of(const std::string& name);

// Executes an operation and holds its failure against what the statement expects.
void execute(Session& session, const Statement& statement);

}  // namespace conformance
