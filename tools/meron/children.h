// SPDX-License-Identifier: Apache-2.0
// Ends all children of this process. As a subreaper it also inherits the children of ended
// processes, so that no descendant remains.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace meron::tools {

struct Patience {
  // Time for them to end after SIGTERM. 0: SIGKILL is the first signal.
  std::chrono::milliseconds term;
  std::chrono::milliseconds total;
};

// Returns the children that did not end in time. Only the kernel (a dead network drive) or another
// user can keep a child alive.
std::vector<pid_t> end_children(Patience patience);

// The children that this process has now, ended ones included until they are waited for.
std::vector<pid_t> children();

}  // namespace meron::tools
