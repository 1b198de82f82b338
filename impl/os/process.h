// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "os/fd.h"

namespace meron {

int32_t process_id();
uint32_t effective_uid();

// The CPUs that the calling thread may run on, ascending; empty when the kernel does not say.
std::vector<int> allowed_cpus();
// Their number; at least 1.
int cpu_count();

// When the process began, in clock ticks since boot: with the pid, an identity that is not reused.
// MERON_E_NOT_FOUND when no such process is visible.
Result<uint64_t> process_start_time(int32_t pid);

// Watches one process, also one that is not a child. Not thread-safe.
class ProcessWatch {
 public:
  // `start_time` (see process_start_time) distinguishes the process from a later one of the same
  // pid; 0: the process that has the pid now.
  explicit ProcessWatch(int32_t pid, uint64_t start_time = 0);

  // False once the process has ended, also while it is an unreaped zombie. Does not wait. Always
  // true for a pid that cannot be watched at all; see reason().
  bool alive();
  // Waits for the end, until `deadline`; true if it has ended.
  bool ended(Deadline deadline);

  int32_t pid() const { return pid_; }
  // A descriptor that polls readable when the process ends, or -1.
  int fd() const { return pidfd_.get(); }
  // Why no pidfd is used; empty when one is.
  const std::string& reason() const { return reason_; }

 private:
  bool alive_by_proc() const;

  int32_t pid_ = 0;
  uint64_t start_time_ = 0;
  bool ended_ = false;
  UniqueFd pidfd_;
  std::string reason_;
};

}  // namespace meron
