// SPDX-License-Identifier: Apache-2.0
#include "os/threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <thread>

#include "os/float_mode.h"
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

#if defined(__x86_64__)
constexpr uint64_t kFlushToZero = kFloatMode | 0x8040;

TEST(BeginThread, DoesNotKeepTheModeOfTheThreadThatStartsIt) {
  const uint64_t found = float_mode();
  set_float_mode(kFlushToZero);
  std::thread([] {
    EXPECT_EQ(float_mode() & 0x8040, 0x8040u);
    begin_thread("meron-test");
    EXPECT_EQ(float_mode(), kFloatMode);
  }).join();
  EXPECT_EQ(float_mode(), kFlushToZero);
  set_float_mode(found);
}

TEST(FloatModeScope, RestoresTheModeAndTheExceptionFlagsThatItFound) {
  const uint64_t found = float_mode();
  constexpr uint64_t kInexact = 0x20;
  for (const uint64_t mode : {kFlushToZero, kFloatMode, kFloatMode | 0x6000 | kInexact}) {
    set_float_mode(mode);
    {
      const FloatModeScope scope;
      EXPECT_EQ(float_mode(), kFloatMode);
      volatile float third = 1.0f;
      third = third / 3.0f;
    }
    EXPECT_EQ(float_mode(), mode);
  }
  set_float_mode(found);
}
#endif

}  // namespace
}  // namespace meron
