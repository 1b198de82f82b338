// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <string>

#include "base/result.h"

namespace meron {

// Blocks all signals of this thread while in scope. Threads that are created meanwhile inherit the
// mask for good: the host program's signals are delivered to its own threads only, as if the
// engine did not exist.
class MaskSignalsScope {
 public:
  MaskSignalsScope();
  ~MaskSignalsScope();
  MaskSignalsScope(const MaskSignalsScope&) = delete;
  MaskSignalsScope& operator=(const MaskSignalsScope&) = delete;

 private:
  sigset_t saved_;
};

// Names the calling thread for debuggers; cut to 15 bytes.
void set_thread_name(const std::string& name);

// Lets all other threads of the process go first, permanently: for work that no thread waits for.
void yield_to_other_threads();

}  // namespace meron
