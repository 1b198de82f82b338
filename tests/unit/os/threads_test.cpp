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

TEST(ThreadName, IsCutToWhatTheKernelTakes) {
  std::thread([] {
    set_thread_name("meron-a-name-that-is-too-long");
    char name[16] = {};
    ASSERT_EQ(::pthread_getname_np(::pthread_self(), name, sizeof name), 0);
    EXPECT_STREQ(name, "meron-a-name-th");
  }).join();
}

TEST(PinThread, RunsOnTheChosenCpu) {
  const std::vector<int> cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  for (int index = 0; index < static_cast<int>(cpus.size()) + 1; ++index) {
    std::thread([&] {
      ASSERT_TRUE(pin_thread(index).ok());
      EXPECT_EQ(::sched_getcpu(), cpus[static_cast<size_t>(index) % cpus.size()]);
    }).join();
  }
  EXPECT_FALSE(pin_thread(-1).ok());
}

}  // namespace
}  // namespace meron
