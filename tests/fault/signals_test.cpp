// SPDX-License-Identifier: Apache-2.0
// Signals are left as they were, and interrupt nothing.
#include <sys/time.h>

#include <fstream>

#include "tests/fault/contexts.h"

namespace meron::test {
namespace {

struct SignalTable {
  struct sigaction actions[65];
  sigset_t mask;
  SignalTable() {
    std::memset(this, 0, sizeof(*this));
    for (int number = 1; number <= 64; ++number) sigaction(number, nullptr, &actions[number]);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  }
  bool operator==(const SignalTable& other) const {
    for (int number = 1; number <= 64; ++number) {
      if (actions[number].sa_handler != other.actions[number].sa_handler ||
          actions[number].sa_flags != other.actions[number].sa_flags) {
        return false;
      }
      if (sigismember(&mask, number) != sigismember(&other.mask, number)) return false;
    }
    return true;
  }
};

// Signals that a thread of this process does not block although it could, other than in the thread
// that asks: of the engine's own threads.
int unmasked_threads() {
  int count = 0;
  DIR* const dir = opendir("/proc/self/task");
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.' || std::atoi(entry->d_name) == getpid()) continue;
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/status");
    std::string name;
    unsigned long long blocked = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("Name:", 0) == 0) name = line;
      if (line.rfind("SigBlk:", 0) == 0) blocked = std::stoull(line.substr(7), nullptr, 16);
    }
    if (name.find("meron") == std::string::npos) continue;  // a sanitizer's
    ++count;
    for (int number = 1; number <= 31; ++number) {
      const bool fixed = number == SIGKILL || number == SIGSTOP;
      if (!fixed && (blocked >> (number - 1) & 1) == 0) return -number;
    }
  }
  closedir(dir);
  return count;
}

TEST(Signals, AreLeftAsTheyWere) {
  Open open = open_as("shm", 2);
  open.adjust = [](int, meron_context_options& options) { options.threads = 3; };
  Job job(2, [&](int rank, Report& report) {
    const SignalTable before;
    Session session(open, rank);
    const meron_param big = session.register_param("big", {1 << 20});
    session.make_unit("big", {big});
    session.make_optimizer();
    meron_future future{};
    MUST(meron_reduce_begin, &future, session.units[0], nullptr, 0, nullptr);
    session.wait(future);
    session.step();
    const SignalTable during;
    report.numbers[0] = before == during ? 1 : 0;
    report.numbers[1] = unmasked_threads();
    session.close();
    const SignalTable after;
    report.numbers[2] = before == after ? 1 : 0;
  });
  expect_well(job);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(1, job[rank].numbers[0]) << "changed while open";
    EXPECT_EQ(2, job[rank].numbers[1]) << "own threads that block all signals";
    EXPECT_EQ(1, job[rank].numbers[2]) << "changed after close";
  }
}

// A program's own timer interrupts every system call; with and without SA_RESTART nothing fails.
TEST(Signals, OfTheProgramInterruptNothing) {
  for (const int flags : {0, SA_RESTART}) {
    const Open open = open_as("shm", 2, "zero0");
    static std::atomic<int> ticks;
    Job job(2, [&](int rank, Report& report) {
      struct sigaction action {};
      action.sa_handler = [](int) { ++ticks; };
      action.sa_flags = flags;
      sigaction(SIGALRM, &action, nullptr);
      const itimerval timer = {{0, 700}, {0, 700}};
      setitimer(ITIMER_REAL, &timer, nullptr);
      if (rank == 1) {
        for (int i = 0; i < 40; ++i) sleep_ns(kMilli);  // rank 0 waits under interrupts
      }
      Session session(open, rank);
      session.build();
      for (int round = 0; round < 10; ++round) {
        if (rank == round % 2) {
          for (int i = 0; i < 10; ++i) sleep_ns(kMilli);
        }
        train(session, 5);
        session.broadcast(100'000, round % 2);
      }
      report.numbers[0] = ticks.load();
      session.close();
    });
    expect_well(job);
    for (int rank = 0; rank < 2; ++rank) EXPECT_GT(job[rank].numbers[0], 20);
  }
}

}  // namespace
}  // namespace meron::test
