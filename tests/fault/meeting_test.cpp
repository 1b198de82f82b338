// SPDX-License-Identifier: Apache-2.0
// The rendezvous: ranks and sizes that differ, variables of launchers, ranks that leave. Rejected
// ranks are in strangers_test.cpp.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/fault/meeting.h"

namespace meron::test {
namespace {

TEST(Ranks, ThatComeTwiceAreTurnedAway) {
  for (const int twice : {0, 1}) {
    const Open open = open_of(3);
    Shared<std::atomic<int>> refused(1);
    Job job(4, [&](int process, Report&) {
      if (process == 3) {
        sleep_ns(50 * kMilli);
        try {
          meet(open, twice);
        } catch (const CallFailed&) {
          refused[0] = 1;
          throw;
        }
        return;
      }
      while (process == 2 && refused[0].load() == 0) sleep_ns(kMilli);
      meet(open, process);
    });
    ASSERT_TRUE(job.wait(20 * kSecond));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
    }
    expect_failed(job[3], MERON_E_DUPLICATE, {twice == 0 ? "rank 0" : "rank 1"});
  }
}

TEST(Ranks, ThatComeTwiceAsThreads) {
  Open open = open_of(2, kSecond);
  open.transport = "local";
  Job job(
      2, [&](int, Report&) { Session session(open, 0); }, true);
  ASSERT_TRUE(job.wait(10 * kSecond));
  const int first = job[0].status == MERON_E_DUPLICATE ? 1 : 0;
  expect_failed(job[first], MERON_E_TIMEOUT, {"rank 1 is missing"});
  expect_failed(job[1 - first], MERON_E_DUPLICATE, {"rank 0"});
}

TEST(Ranks, OfDifferentWorldsAllFail) {
  for (const char* transport : {"shm", "local"}) {
    Open open = open_of(3);
    open.transport = transport;
    Job job(
        2,
        [&](int rank, Report&) {
          Open own = open;
          if (rank == 1) own.ranks = 2;
          meet(own, rank);
        },
        std::strcmp(transport, "local") == 0);
    ASSERT_TRUE(job.wait(20 * kSecond));
    for (int rank = 0; rank < 2; ++rank) {
      expect_failed(job[rank], MERON_E_MISMATCH, {"3", "2", "ranks"});
    }
  }
}

// The launchers' variables, in the order in which they count.
TEST(Environment, OfLaunchersIsRead) {
  const std::vector<std::vector<std::string>> launchers = {
      {"MERON_RANK", "MERON_WORLD_SIZE"},
      {"RANK", "WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"SLURM_PROCID", "SLURM_NTASKS"},
      {"PMI_RANK", "PMI_SIZE"},
  };
  for (size_t first = 0; first < launchers.size(); ++first) {
    const Open open = open_of(2);
    SCOPED_TRACE(launchers[first][0]);
    Job job(2, [&](int rank, Report& report) {
      Open own = open;
      own.adjust = [](int, meron_context_options& options) {
        options.rank = -1;
        options.world_size = -1;
      };
      for (const auto& names : launchers) unsetenv(names[0].c_str());
      for (const auto& names : launchers) unsetenv(names[1].c_str());
      // Variables of lower priority have other values.
      for (size_t later = first + 1; later < launchers.size(); ++later) {
        setenv(launchers[later][0].c_str(), "5", 1);
        setenv(launchers[later][1].c_str(), "6", 1);
      }
      setenv(launchers[first][0].c_str(), std::to_string(rank).c_str(), 1);
      setenv(launchers[first][1].c_str(), "2", 1);
      Session session(own, rank);
      MUST(meron_context_rank, &report.numbers[0], session.context);
      MUST(meron_context_world_size, &report.numbers[1], session.context);
      session.barrier();
      session.close();
    });
    expect_met(job);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(rank, job[rank].numbers[0]);
      EXPECT_EQ(2, job[rank].numbers[1]);
    }
  }
}

TEST(Environment, ThatMakesNoSenseIsRefused) {
  struct {
    const char* rank;  // null: unset
    const char* size;
    std::vector<std::string> says;
  } const cases[] = {
      {"0", nullptr, {"MERON_RANK is set, but MERON_WORLD_SIZE is not"}},
      {nullptr, "2", {"MERON_WORLD_SIZE is set, but MERON_RANK is not"}},
      {"zero", "2", {"MERON_RANK='zero'", "whole number"}},
      {"0", "", {"MERON_WORLD_SIZE=''"}},
      {"0", "2.5", {"MERON_WORLD_SIZE='2.5'"}},
      {"0", "99999999999", {"MERON_WORLD_SIZE='99999999999'"}},
      {"2", "2", {"rank 2 is beyond a world of 2", "meron run"}},
      {"-1", "2", {"rank -1"}},
      {"0", "0", {"a world of 0 ranks"}},
      {"0", "-3", {"a world of -3 ranks"}},
      {"0", "100000000", {"a world of 100000000 ranks"}},
  };
  for (const auto& each : cases) {
    Job job(1, [&](int rank, Report&) {
      Open open = open_of(1, kSecond);
      open.adjust = [](int, meron_context_options& options) {
        options.rank = -1;
        options.world_size = -1;
      };
      each.rank != nullptr ? setenv("MERON_RANK", each.rank, 1) : unsetenv("MERON_RANK");
      each.size != nullptr ? setenv("MERON_WORLD_SIZE", each.size, 1)
                           : unsetenv("MERON_WORLD_SIZE");
      meet(open, rank);
    });
    ASSERT_TRUE(job.wait(5 * kSecond));
    expect_failed(job[0], MERON_E_ARGUMENT, each.says);
  }
}

// A rank that stops waiting may return, also if it is rank 0.
TEST(GivingUp, AndComingAgain) {
  for (const char* transport : {"shm", "local"}) {
    const bool threads = std::strcmp(transport, "local") == 0;
    for (const auto& [impatient, pause_ns] :
         {std::pair{0, int64_t{0}}, {1, int64_t{0}}, {1, 10 * kMilli}}) {
      if (threads && impatient == 0) continue;  // threads have no host
      Open open = open_of(3);
      open.transport = transport;
      SCOPED_TRACE(std::string(transport) + ", rank " + std::to_string(impatient) +
                   ", comes again after " + std::to_string(pause_ns / kMilli) + " ms");
      Shared<std::atomic<int>> gave_up(1);
      Job job(
          3,
          [&](int rank, Report& report) {
            Open own = open;
            if (rank == impatient) {
              own.adjust = [](int, meron_context_options& options) {
                // Not in time with rank 0, which looks around every 20 ms.
                options.should_stop = [](void*) -> int32_t {
                  sleep_ns(10 * kMilli);
                  return 1;
                };
              };
              try {
                meet(own, rank);
              } catch (const CallFailed& failed) {
                report.numbers[0] = failed.status;
              }
              gave_up[0] = 1;
              own.adjust = nullptr;
              // The last rank arrives first, while rank 0 still has this one in its list.
              sleep_ns(pause_ns);
            }
            while (rank == 2 && gave_up[0].load() == 0) sleep_ns(kMilli);
            // Rank 0 turns those that have arrived away, too: they try again, as their user would.
            for (int attempt = 0;; ++attempt) {
              try {
                report.numbers[1] = attempt;
                return meet(own, rank);
              } catch (const CallFailed& failed) {
                if (failed.status != MERON_E_PEER_CLOSED || attempt == 3) throw;
              }
            }
          },
          threads);
      expect_met(job);
      EXPECT_EQ(MERON_E_CANCELLED, job[impatient].numbers[0]);
      // Rank 0 does not count a rank that has left, so the others succeed at once.
      for (int rank = 0; impatient != 0 && rank < 3; ++rank) {
        EXPECT_EQ(0, job[rank].numbers[1]) << "attempts of rank " << rank;
      }
    }
  }
}

// Rank 0 closes the connection but stays alive: no rank gets a report of its death.
TEST(GivingUp, ByRankZeroThatLives) {
  const std::string job = fresh_token();
  const std::string name = "meron-" + std::to_string(geteuid()) + "-" + job;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(0, bind(listener, reinterpret_cast<const sockaddr*>(&address), bytes));
  ASSERT_EQ(0, listen(listener, 1));
  Open open = open_of(2);
  open.adjust = [&](int, meron_context_options& options) { options.job = job.c_str(); };
  Job ranks(1, [&](int, Report&) { meet(open, 1); });
  const int accepted = accept(listener, nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  sleep_ns(50 * kMilli);  // it has greeted by now
  close(accepted);
  ASSERT_TRUE(ranks.wait(5 * kSecond)) << "it hangs";
  expect_failed(ranks[0], MERON_E_PEER_CLOSED, {"rank 0 ended the meeting without this rank"});
  EXPECT_EQ(0, ranks[0].peer);
  close(listener);
}

// If a rank dies between its greeting and the end of the rendezvous, all ranks get the error at
// once.
TEST(GivingUp, ByDyingIsNoticedAtOnce) {
  const Open open = open_of(3, 20 * kSecond);
  Job job(3, [&](int rank, Report&) {
    if (rank == 2) {
      while (true) pause();
    }
    meet(open, rank);
  });
  sleep_ns(60 * kMilli);  // rank 1 has arrived by now
  const int64_t killed = now_ns();
  job.signal(1, SIGKILL);
  while (__atomic_load_n(&job[0].ended, __ATOMIC_ACQUIRE) == 0 && now_ns() < killed + 5 * kSecond) {
    sleep_ns(kMilli);
  }
  EXPECT_EQ(MERON_E_PEER_DEAD, job[0].status) << job[0].message;
  EXPECT_EQ(1, job[0].peer);
  EXPECT_LT(job[0].failed_ns - killed, 2 * kSecond);
  (void)job.wait(0);
}

// Rank 1 has too little address space for the memory of rank 2, and lives on. The others have met
// by then, and do not wait for it.
TEST(GivingUp, AfterOthersHaveJoinedIsSeenAtOnce) {
  constexpr uint64_t kGiB = 1 << 30;
  Open open = open_of(3);
  open.adjust = [](int rank, meron_context_options& options) {
    if (rank == 2) options.arena_reserve = 8 * kGiB;
  };
  Shared<std::atomic<int>> ended(1);
  Job job(3, [&](int rank, Report& report) {
    if (rank == 1) {
      uint64_t pages = 0;
      std::FILE* const file = std::fopen("/proc/self/statm", "r");
      if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) std::abort();
      std::fclose(file);
      const rlim_t bytes = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + 4 * kGiB;
      const rlimit limit{bytes, bytes};
      if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
    }
    try {
      meet(open, rank);
    } catch (const CallFailed& failed) {
      record(report, failed);
    }
    ++ended[0];
    while (ended[0].load() < 3) sleep_ns(kMilli);
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  expect_failed(job[1], MERON_E_NO_MEMORY, {"address space"});
  for (const int rank : {0, 2}) {
    expect_failed(job[rank], MERON_E_PEER_CLOSED, {"rank 1"});
    EXPECT_EQ(1, job[rank].peer);
    EXPECT_LT(job[rank].failed_ns - job[1].failed_ns, kSecond);
  }
}

}  // namespace
}  // namespace meron::test
