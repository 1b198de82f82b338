// SPDX-License-Identifier: Apache-2.0
#include "os/threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <thread>

#include "os/process.h"

namespace meron {
namespace {

bool blocked(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, signal) == 1;
}

TEST(MaskSignals, ThreadsMadeInScopeBlockAllAndTheCallerIsRestored) {
  ASSERT_FALSE(blocked(SIGINT));
  std::thread thread;
  {
    const MaskSignalsScope scope;
    EXPECT_TRUE(blocked(SIGINT));
    thread = std::thread([] {
      for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGPROF}) {
        EXPECT_TRUE(blocked(signal)) << signal;
      }
    });
  }
  EXPECT_FALSE(blocked(SIGINT));
  thread.join();
}

TEST(BeginThread, CutsTheNameToWhatTheKernelTakes) {
  std::thread([] {
    begin_thread("meron-a-name-that-is-too-long");
    char name[16] = {};
    ASSERT_EQ(::pthread_getname_np(::pthread_self(), name, sizeof name), 0);
    EXPECT_STREQ(name, "meron-a-name-th");
  }).join();
}

}  // namespace
}  // namespace meron
