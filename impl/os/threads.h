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

// The first call of each thread that the engine starts. Names it for debuggers, cut to 15 bytes,
// and sets the engine's floating-point mode: a thread inherits the mode of the one that
// starts it.
void begin_thread(const std::string& name);

// Lets all other threads of the process go first, permanently: for work that no thread waits for.
void yield_to_other_threads();

}  // namespace meron
