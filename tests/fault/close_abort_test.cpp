// SPDX-License-Identifier: Apache-2.0
// How a context ends: by close, by abort, after a fork; and what it leaves as it found it.
#include <sys/mman.h>
#include <sys/time.h>

#include <fstream>

#include "tests/conformance/c/dlpack.h"
#include "tests/fault/job.h"

namespace meron::test {
namespace {

constexpr int64_t kClosedWithin = 5 * kSecond;
constexpr int64_t kAbortedWithin = kSecond;

Open open_as(const char* transport, int ranks, const std::string& plan = "zero3") {
  Open open;
  open.transport = transport;
  open.ranks = ranks;
  open.plan = plan;
  open.token = fresh_token();
  return open;
}

bool threads(const Open& open) {
  return std::strcmp(open.transport, "local") == 0;
}

void expect_well(Job& job) {
  ASSERT_TRUE(job.wait(60 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status)
        << "rank " << rank << ": " << job[rank].function << ": " << job[rank].message;
    EXPECT_TRUE(exited_well(job.status(rank)));
  }
}

void train(Session& session, int steps) {
  for (int step = 0; step < steps; ++step) {
    session.gather(0);
    for (size_t unit = 2; unit-- > 0;) {
      session.reduce(unit, 0.1f * static_cast<float>(session.rank + step % 5 + 1));
    }
    session.step();
  }
}
int64_t bits_of(double value) {
  int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// A tensor that went out by DLPack belongs to whoever has it, longer than the context.
TEST(Close, LeavesExportedTensorsReadable) {
  for (const char* plan : {"zero0", "zero3"}) {
    Open open;
    open.plan = plan;
    open.token = fresh_token();
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.update(0, 2.5f);
      meron_gather gather{};
      MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
      MUST(meron_gather_wait, gather, MERON_TIMEOUT_DEFAULT);
      DLManagedTensorVersioned* tensor = nullptr;
      MUST(meron_gather_dlpack, &tensor, gather, session.params[0]);
      session.barrier();
      session.close();
      const auto* values = static_cast<const float*>(tensor->dl_tensor.data);
      for (int64_t i = 0; i < tensor->dl_tensor.shape[0] * tensor->dl_tensor.shape[1]; ++i) {
        report.numbers[0] += values[i] == 2.5f ? 1 : 0;
      }
      tensor->deleter(tensor);
    });
    ASSERT_TRUE(job.wait(20 * kSecond));
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
      EXPECT_TRUE(exited_well(job.status(rank)));
      EXPECT_EQ(37 * 13, job[rank].numbers[0]);
    }
  }
}

TEST(Close, WithADeadPeerAndOperationsUnderWay) {
  for (const char* plan : {"zero0", "zero3"}) {
    const Open open = open_as("shm", 2, plan);
    Shared<std::atomic<int>> dead(1);
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.barrier();
      report.mark = 1;
      while (rank == 1) pause();
      while (dead[0].load() == 0) sleep_ns(kMilli);
      static float data[100'000];
      meron_future future{};
      MUST(meron_all_reduce_begin, &future, session.world, data, 100'000, MERON_F32, MERON_SUM);
      session.reduce_begin(0, 1.0f);
      meron_gather gather{};
      MUST(meron_gather_begin, &gather, session.units.data(), 2, nullptr);
      report.times[0] = now_ns();
      session.close();
      report.times[0] = now_ns() - report.times[0];
    });
    ASSERT_TRUE(job.reached(1));
    job.signal(1, SIGKILL);
    sleep_ns(20 * kMilli);
    dead[0] = 1;
    ASSERT_TRUE(job.wait(30 * kSecond));
    EXPECT_EQ(MERON_OK, job[0].status) << job[0].message;
    EXPECT_LT(job[0].times[0], kClosedWithin);
  }
}

// Threads that wait in every way, one of them a whole ring ahead, hear of a close by another
// thread.
TEST(Close, WhileOtherThreadsWait) {
  for (const char* transport : {"shm", "local"}) {
    Open open = open_as(transport, 2, R"({"preset": "zero2", "gradient_buckets": 1})");
    open.timeout_ns = 60 * kSecond;
    Shared<std::atomic<int>> done(1);
    Job job(
        2,
        [&](int rank, Report& report) {
          Session session(open, rank);
          session.build();
          session.barrier();
          if (rank == 1) {
            session.reduce_begin(0, 1.0f);
            while (done[0].load() == 0) sleep_ns(kMilli);
            session.close();
            return;
          }
          sleep_ns(20 * kMilli);
          session.reduce(0, 1.0f);
          MUST(meron_reduce_discard, session.units[0]);
          meron_future barrier{};
          MUST(meron_barrier_begin, &barrier, session.world);
          std::vector<std::thread> waiting;
          std::atomic<int> inside{0};
          const auto wait_for = [&](int place, std::function<meron_status()> call) {
            waiting.emplace_back([&report, &inside, place, call = std::move(call)] {
              ++inside;
              report.numbers[place] = call();
              report.times[place] = now_ns();
            });
          };
          wait_for(0, [&] { return meron_future_wait(barrier, MERON_TIMEOUT_DEFAULT, nullptr); });
          wait_for(1, [&] { return meron_future_wait(barrier, 30 * kSecond, nullptr); });
          wait_for(2, [&] {
            meron_view view{};
            return meron_gradient_view(&view, session.params[2], 0, nullptr);
          });
          sleep_ns(60 * kMilli);
          wait_for(3, [&] {
            meron_status status = MERON_OK;
            for (int i = 0; i < 1100 && status == MERON_OK; ++i) {
              meron_gather gather{};
              status = meron_gather_begin(&gather, session.units.data(), 1, nullptr, nullptr);
              if (status == MERON_OK) (void)meron_gather_release(gather, nullptr);
            }
            return status;
          });
          while (inside.load() < 4) sleep_ns(kMilli);
          sleep_ns(60 * kMilli);
          report.times[4] = now_ns();
          session.close();
          report.times[5] = now_ns();
          for (std::thread& thread : waiting) thread.join();
          done[0] = 1;
        },
        threads(open));
    expect_well(job);
    const Report& report = job[0];
    EXPECT_LT(report.times[5] - report.times[4], kClosedWithin);
    for (int place = 0; place < 4; ++place) {
      const meron_status status = report.numbers[place];
      EXPECT_TRUE(status == MERON_E_CLOSED || status == MERON_E_STALE)
          << transport << " wait " << place << ": " << meron_status_name(status);
      EXPECT_LT(report.times[place] - report.times[4], kSecond) << "wait " << place;
    }
  }
}

// Once close has returned, nobody touches memory that the caller passed, whoever still waits.
TEST(Close, LetsGoOfTheCallersMemory) {
  const Open open = open_as("shm", 2);
  constexpr size_t kBytes = 8 << 20;
  Job job(2, [&](int rank, Report&) {
    for (int round = 0; round < 8; ++round) {
      Open again = open;
      again.token[63] = static_cast<char>('0' + round);
      Session session(again, rank);
      session.barrier();
      void* const memory =
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      meron_future future{};
      MUST(meron_all_reduce_begin, &future, session.world, memory, kBytes / 4, MERON_F32,
           MERON_SUM);
      std::thread waiting(
          [&] { (void)!meron_future_wait(future, MERON_TIMEOUT_DEFAULT, nullptr); });
      sleep_ns(round * kMilli / 4);
      session.close();
      munmap(memory, kBytes);
      waiting.join();
    }
  });
  expect_well(job);
}

TEST(Close, AndOpenAgain) {
  for (const char* transport : {"shm", "local", "self"}) {
    const Open open = open_as(transport, std::strcmp(transport, "self") == 0 ? 1 : 3, "zero1");
    Job job(
        open.ranks,
        [&](int rank, Report&) {
          for (int round = 0; round < 12; ++round) {
            Session session(open, rank);
            session.build();
            train(session, 2);
            session.close();
          }
        },
        threads(open));
    expect_well(job);
  }
}

// Two jobs of the same processes, with the ranks in another order, one step here and one there.
TEST(Close, TwoContextsAtOnce) {
  const Open here = open_as("shm", 2, "zero2");
  const Open there = open_as("shm", 2, "zero2");
  Job job(2, [&](int rank, Report& report) {
    Session first(here, rank);
    Session second(there, 1 - rank);
    first.build();
    second.build();
    for (int step = 0; step < 10; ++step) {
      train(first, 1);
      train(second, 1);
    }
    report.times[0] = bits_of(first.gather(0));
    first.close();
    train(second, 1);
    report.times[1] = bits_of(second.gather(0));
    second.close();
  });
  expect_well(job);
  EXPECT_EQ(job[0].times[0], job[1].times[0]);
  EXPECT_EQ(job[0].times[1], job[1].times[1]);
}

TEST(Abort, ReachesEveryRankWithItsReason) {
  for (const char* transport : {"shm", "local"}) {
    const Open open = open_as(transport, 3);
    Shared<std::atomic<int64_t>> aborted(1);
    Job job(
        3,
        [&](int rank, Report& report) {
          Session session(open, rank);
          session.build();
          session.barrier();
          try {
            if (rank == 1) {
              sleep_ns(40 * kMilli);
              aborted[0] = now_ns();
              MUST(meron_group_abort, session.world, "the loss is 7e12");
            }
            session.update(0, 1.0f);  // waits for rank 1
          } catch (const CallFailed&) {
            report.numbers[0] = meron_group_status(session.world, nullptr);
            session.close();
            throw;
          }
        },
        threads(open));
    ASSERT_TRUE(job.wait(30 * kSecond));
    for (int rank = 0; rank < 3; ++rank) {
      const Report& report = job[rank];
      SCOPED_TRACE(std::string(transport) + ": " + report.message);
      EXPECT_EQ(MERON_E_ABORTED, report.status);
      EXPECT_EQ(MERON_E_ABORTED, report.numbers[0]);
      EXPECT_EQ(1, report.peer);
      EXPECT_NE(nullptr, std::strstr(report.message, "the loss is 7e12"));
      EXPECT_LT(report.failed_ns - aborted[0].load(), kAbortedWithin);
    }
  }
}

TEST(Abort, KeepsTheFirst200BytesOfAReason) {
  const Open open = open_as("self", 1);
  Job job(1, [&](int rank, Report&) {
    Session session(open, rank);
    const std::string reason = std::string(200, 'r') + "X";
    MUST(meron_group_abort, session.world, reason.c_str());
    MUST(meron_group_abort, session.world, nullptr);  // the first one holds
    session.barrier();
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  const std::string message = job[0].message;
  EXPECT_NE(std::string::npos, message.find(std::string(200, 'r'))) << message;
  EXPECT_EQ(std::string::npos, message.find('X'));
}

// An error breaks its group, and no other.
TEST(Abort, OfAGroupLeavesTheOthers) {
  for (const char* transport : {"shm", "local"}) {
    const Open open = open_as(transport, 4, "zero3");
    Job job(
        4,
        [&](int rank, Report& report) {
          Session session(open, rank);
          const int32_t low[] = {0, 1};
          const int32_t high[] = {3, 2};
          meron_group groups[2] = {};
          MUST(meron_group_create, &groups[0], session.context, low, 2);
          MUST(meron_group_create, &groups[1], session.context, high, 2);
          const meron_group own = groups[rank < 2 ? 0 : 1];
          report.numbers[0] = groups[rank < 2 ? 1 : 0].id == 0 ? 1 : 0;
          const meron_param param =
              session.register_param(rank < 2 ? "low" : "high", {33}, MERON_F32, own);
          session.make_unit(rank < 2 ? "low" : "high", {param});
          session.barrier(own);
          if (rank == 0) MUST(meron_group_abort, own, "to see what is left");
          if (rank < 2) {
            const auto in_own = [&] {
              try {
                session.barrier(own);
                return CallFailed{};
              } catch (const CallFailed& failed) {
                return failed;
              }
            };
            report.numbers[1] = in_own().status;
          }
          session.barrier();
          meron_gather gather{};
          report.numbers[2] =
              meron_gather_begin(&gather, session.units.data(), 1, nullptr, nullptr);
          if (rank >= 2) session.barrier(own);
          report.numbers[3] = static_cast<int32_t>(session.all_reduce(10));
          session.close();
        },
        threads(open));
    expect_well(job);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(1, job[rank].numbers[0]) << "a group that this rank is not in";
      EXPECT_EQ(rank < 2 ? MERON_E_ABORTED : MERON_OK, job[rank].numbers[1]);
      EXPECT_EQ(rank < 2 ? MERON_E_ABORTED : MERON_OK, job[rank].numbers[2]);
      EXPECT_EQ(4, job[rank].numbers[3]);
    }
  }
}

// An update that is given up before it could write cannot be undone on the other ranks.
TEST(Abort, ByAnUpdateGivenUp) {
  const Open open = open_as("shm", 2);
  Job job(2, [&](int rank, Report&) {
    Session session(open, rank);
    session.build();
    if (rank == 0) {
      meron_update update{};
      MUST(meron_update_begin, &update, session.units.data(), 1);
      MUST(meron_update_release, update);
    } else {
      sleep_ns(50 * kMilli);  // so that rank 0's cannot have ended
    }
    try {
      session.update(0, 1.0f);
    } catch (const CallFailed&) {
      session.close();
      throw;
    }
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(MERON_E_ABORTED, job[rank].status) << job[rank].message;
    EXPECT_EQ(0, job[rank].peer);
  }
}

// What a forked child gets from each kind of call.
std::vector<meron_status> calls_of_a_child(const Session& session, meron_gather gather,
                                           meron_future future) {
  meron_context context{};
  meron_group group{};
  meron_param param{};
  meron_unit unit{};
  meron_gather other{};
  meron_future begun{};
  meron_update update{};
  meron_view view{};
  meron_stats stats{};
  stats.struct_size = sizeof(stats);
  char* text = nullptr;
  int32_t number = 0;
  float data[4] = {};
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "child";
  return {
      meron_context_open(&context, nullptr, nullptr),
      meron_context_rank(&number, session.context, nullptr),
      meron_context_stats(&stats, session.context, nullptr),
      meron_context_progress(session.context, nullptr),
      meron_context_flight_record(&text, session.context, nullptr),
      meron_context_world(&group, session.context, nullptr),
      meron_group_create(&group, session.context, &number, 1, nullptr),
      meron_group_size(&number, session.world, nullptr),
      meron_group_status(session.world, nullptr),
      meron_group_abort(session.world, "child", nullptr),
      meron_barrier_begin(&begun, session.world, nullptr),
      meron_broadcast_begin(&begun, session.world, data, 4, 0, nullptr),
      meron_all_reduce_begin(&begun, session.world, data, 4, MERON_F32, MERON_SUM, nullptr),
      meron_param_register(&param, session.context, &desc, nullptr),
      meron_unit_create(&unit, session.context, "child", session.params.data(), 1, nullptr),
      meron_gather_begin(&other, session.units.data(), 1, nullptr, nullptr),
      meron_gather_wait(gather, 0, nullptr),
      meron_gather_view(&view, gather, session.params[0], nullptr),
      meron_update_begin(&update, session.units.data(), 1, nullptr),
      meron_gradient_view(&view, session.params[0], 0, nullptr),
      meron_reduce_begin(&begun, session.units[0], nullptr, 0, nullptr, nullptr),
      meron_optimizer_step_begin(&begun, session.optimizer, nullptr),
      meron_future_wait(future, MERON_TIMEOUT_DEFAULT, nullptr),
      meron_future_poll(future, nullptr),
      meron_future_release(future, nullptr),
      meron_gather_release(gather, nullptr),
      meron_param_release(session.params[0], nullptr),
      meron_unit_release(session.units[0], nullptr),
      meron_optimizer_release(session.optimizer, nullptr),
      meron_group_release(session.world, nullptr),
      meron_context_close(session.context, nullptr),
  };
}

struct AtExit {
  ~AtExit() { std::fflush(nullptr); }
};

// Children of a training rank get MERON_E_FORKED, whatever they call, and exit as any process does;
// the training does not notice.
TEST(Fork, ChildrenAreRefusedAndHarmNothing) {
  int64_t expected = 0;
  for (const bool forks : {false, true}) {
    const Open open = open_as("shm", 2, "zero2");
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.update(0, 0.5f);
      for (int step = 0; step < 20; ++step) {
        train(session, 1);
        meron_gather gather{};
        meron_future future{};
        MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
        MUST(meron_gather_wait, gather, MERON_TIMEOUT_DEFAULT);
        MUST(meron_barrier_begin, &future, session.world);
        if (forks && step % 4 == rank) {
          static AtExit at_exit;
          std::fflush(nullptr);
          const pid_t child = fork();
          if (child == 0) {
            int wrong = 0;
            for (const meron_status status : calls_of_a_child(session, gather, future)) {
              if (status != MERON_E_FORKED) {
                std::fprintf(stderr, "a forked child gets %s\n", meron_status_name(status));
                ++wrong;
              }
            }
            exit(wrong == 0 ? 0 : 1);  // with destructors, as a worker of a data loader does
          }
          int status = 0;
          waitpid(child, &status, 0);
          if (!exited_well(status)) ++report.numbers[0];
          ++report.numbers[1];
        }
        session.wait(future);
        MUST(meron_gather_release, gather);
      }
      report.times[0] = bits_of(session.gather(0));
      session.close();
    });
    ASSERT_TRUE(job.wait(60 * kSecond)) << "a rank hangs";
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
      EXPECT_EQ(0, job[rank].numbers[0]) << "a child was not refused, or crashed";
      EXPECT_EQ(forks ? 5 : 0, job[rank].numbers[1]);
      if (!forks) expected = job[rank].times[0];
      EXPECT_EQ(expected, job[rank].times[0]) << "values differ from a run without forks";
    }
  }
}

// The other way round is allowed: a process forks first and both use Meron.
TEST(Fork, BeforeTheFirstCallIsAllowed) {
  const Open open = open_as("self", 1);
  Job job(1, [&](int rank, Report& report) {
    const pid_t child = fork();
    Session session(open, rank);
    session.build();
    train(session, 1);
    session.close();
    if (child == 0) _exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    report.numbers[0] = exited_well(status) ? 1 : 0;
  });
  expect_well(job);
  EXPECT_EQ(1, job[0].numbers[0]);
}

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
