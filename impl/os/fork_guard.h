// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace meron {

// 1 in the process that made it; the kernel wipes its page in children (MADV_WIPEONFORK). Null: not
// made yet, or not supported.
extern std::atomic<const std::atomic<int>*> fork_mark;

// The first call of a process makes the mark; without one the process id is compared.
bool is_forked_child_slow();

// True if this process is a fork of the one that first called this function. Costs two loads, and
// installs no handler.
inline bool is_forked_child() {
  const std::atomic<int>* const mark = fork_mark.load(std::memory_order_acquire);
  return mark != nullptr ? mark->load(std::memory_order_relaxed) == 0 : is_forked_child_slow();
}

}  // namespace meron
