// SPDX-License-Identifier: Apache-2.0
// `meron run` is three processes. The launcher is what the user started: it passes signals on and
// returns the job's exit code. Its child, the guard, has a session of its own and waits. The
// guard's child, the supervisor, is the parent of the ranks, in the launcher's process group. All
// three are subreapers of what they start: if one is killed, or the whole group is, another ends
// the job.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "tools/meron/unique_fd.h"

namespace meron::tools {

// A signal that the launcher received.
struct ReceivedSignal {
  int signal = 0;
  // From the terminal, whose foreground process group receives it as a whole.
  bool from_terminal = false;
  std::chrono::steady_clock::time_point time;
};

// The supervisor's end.
class Launcher {
 public:
  Launcher(UniqueFd signals, pid_t process_group, const sigset_t& outer_mask)
      : signals_(std::move(signals)), process_group_(process_group), outer_mask_(outer_mask) {}

  // Polls readable when a signal has arrived or the launcher has ended.
  int fd() const { return signals_.get(); }
  // The next signal; none if no more has arrived.
  std::optional<ReceivedSignal> next();
  // True if it has ended, by whatever cause.
  bool ended() const;

  // The group that the terminal treats as the job: the ranks join it.
  pid_t process_group() const { return process_group_; }
  // The signals that were blocked when the launcher began: the ranks' mask.
  const sigset_t& outer_mask() const { return outer_mask_; }

 private:
  UniqueFd signals_;
  pid_t process_group_;
  sigset_t outer_mask_;
};

// Runs `supervise` in the supervisor and returns its value in all three processes: the supervisor
// has ended all other children by then, and exits with the value; the others have waited for it.
int run_supervised(const std::function<int(Launcher&)>& supervise);

}  // namespace meron::tools
