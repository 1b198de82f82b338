// SPDX-License-Identifier: Apache-2.0
// A rank that stops without dying.
#pragma once

#include <atomic>
#include <csignal>

#include "tests/fault/job.h"

namespace meron::test {

// Stops rank 1 until rank 0 resumes it: a process by SIGSTOP, a thread by a wait.
struct Stop {
  std::atomic<int> stopped;
  std::atomic<int> go;
  std::atomic<int> gone;
  std::atomic<pid_t> pid;

  void here(bool process) {
    pid = getpid();
    stopped = 1;
    if (process) raise(SIGSTOP);
    while (!process && go.load() == 0) sleep_ns(kMilli);
    gone = 1;
  }
  void wait() const {
    while (stopped.load() == 0) sleep_ns(kMilli / 10);
  }
  void release(bool process) {
    go = 1;
    // It may have announced its stop and not have stopped yet: it is sent on until it goes.
    while (process && gone.load() == 0) {
      kill(pid, SIGCONT);
      sleep_ns(kMilli);
    }
  }
};

}  // namespace meron::test
