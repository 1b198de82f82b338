// SPDX-License-Identifier: Apache-2.0
#include "os/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/clock.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

using test::Child;

int sleep_for_ever() {
  for (;;) ::pause();
}

// How long a watch takes to notice that its process was killed but not reaped, in ns: the best of a
// few, because any may be late on a machine with other work.
int64_t time_to_notice(bool with_pidfd) {
  int64_t best = INT64_MAX;
  for (int attempt = 0; attempt < 5; ++attempt) {
    Child child(sleep_for_ever);
    ProcessWatch watch(child.pid());
    if (!watch.alive() || watch.reason().empty() != with_pidfd) return INT64_MAX;
    const int64_t begin = now_ns();
    child.kill(SIGKILL);
    if (!watch.ended(Deadline::after(10 * kNanosPerSecond)) || watch.alive()) return INT64_MAX;
    best = std::min(best, now_ns() - begin);
    child.wait();
    if (watch.alive()) return INT64_MAX;
  }
  return best;
}

TEST(ProcessWatch, NoticesAKillBeforeTheProcessIsReaped) {
  EXPECT_LT(time_to_notice(true), 50 * kNanosPerMilli);
}

TEST(ProcessWatch, NoticesAKillWithoutPidfd) {
  for (const int error : {ENOSYS, EPERM}) {
    EXPECT_EQ(test::run_in_child([=] {
                CHILD_EXPECT(test::deny_syscall(SYS_pidfd_open, error));
                ProcessWatch self(process_id());
                CHILD_EXPECT(self.reason().find("pidfd_open") != std::string::npos);
                CHILD_EXPECT(self.fd() == -1 && self.alive());
                CHILD_EXPECT(time_to_notice(false) < 50 * kNanosPerMilli);
                return 0;
              }),
              0);
  }
}

TEST(ProcessWatch, WaitsForTheEndUntilTheDeadline) {
  for (const bool with_pidfd : {true, false}) {
    EXPECT_EQ(test::run_in_child([=] {
                if (!with_pidfd) CHILD_EXPECT(test::deny_syscall(SYS_pidfd_open, ENOSYS));
                Child grandchild(sleep_for_ever);
                ProcessWatch watch(grandchild.pid());
                CHILD_EXPECT(!watch.ended(Deadline::after(0)));
                const int64_t begin = now_ns();
                CHILD_EXPECT(!watch.ended(Deadline::after_ms(20)));
                CHILD_EXPECT(now_ns() - begin >= 20 * kNanosPerMilli);
                grandchild.kill(SIGKILL);
                CHILD_EXPECT(watch.ended(Deadline::never()));
                CHILD_EXPECT(watch.ended(Deadline::after(0)));
                return 0;
              }),
              0);
  }
}

TEST(ProcessWatch, ALaterProcessOfTheSamePidIsNotTheSame) {
  Child child(sleep_for_ever);
  const auto start = process_start_time(child.pid());
  ASSERT_TRUE(start.ok());
  EXPECT_TRUE(ProcessWatch(child.pid(), *start).alive());
  EXPECT_FALSE(ProcessWatch(child.pid(), *start - 1).alive());
}

TEST(ProcessWatch, APidThatIsGoneIsDead) {
  pid_t pid;
  {
    Child child([] { return 0; });
    pid = child.pid();
    child.wait();
  }
  EXPECT_FALSE(ProcessWatch(pid).alive());
  EXPECT_EQ(process_start_time(pid).error().code(), MERON_E_NOT_FOUND);
}

TEST(ProcessWatch, WhatCannotBeWatchedCountsAsAlive) {
  ProcessWatch watch(0);
  EXPECT_TRUE(watch.alive());
  EXPECT_NE(watch.reason(), "");
  EXPECT_TRUE(ProcessWatch(-1).alive());
}

TEST(ProcessStartTime, IsReadBehindAnyProgramName) {
  const auto own = process_start_time(process_id());
  ASSERT_TRUE(own.ok());
  Child child([&] {
    ::prctl(PR_SET_NAME, ") R 1 2 3 (");
    const auto start = process_start_time(process_id());
    CHILD_EXPECT(start.ok() && *start >= *own && *start < *own + 1000000);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(CpuCount, FollowsTheAffinity) {
  EXPECT_GE(cpu_count(), 1);
  EXPECT_EQ(test::run_in_child([] {
              const std::vector<int> cpus = allowed_cpus();
              CHILD_EXPECT(!cpus.empty());
              cpu_set_t one;
              CPU_ZERO(&one);
              CPU_SET(cpus.back(), &one);
              CHILD_EXPECT(::sched_setaffinity(0, sizeof one, &one) == 0);
              CHILD_EXPECT(cpu_count() == 1);
              CHILD_EXPECT(allowed_cpus() == std::vector<int>{cpus.back()});
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace meron
