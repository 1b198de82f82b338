// SPDX-License-Identifier: Apache-2.0
// A rank stops or dies while all load. The others give it twice the timeout for each agreement, as
// its drive may be slow, and then name it.
#include <filesystem>

#include "tests/fault/job.h"

namespace meron::test {
namespace {

constexpr int64_t kTimeout = 400 * kMilli;
constexpr int64_t kTolerance = kSecond;
// Of ranks that must all be in time, on a machine that does much beside.
constexpr int64_t kLongTimeout = (kSanitized ? 2 : 1) * kSecond;
constexpr int kRanks = 3;

class Folder {
 public:
  Folder() {
    path = (std::filesystem::temp_directory_path() / "meron-load-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path;
};

Open world_of(int64_t timeout_ns) {
  Open open;
  open.ranks = kRanks;
  open.token = fresh_token();
  open.timeout_ns = timeout_ns;
  return open;
}

void load(Session& session, const std::string& folder, bool rank0_only) {
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.optimizers = &session.optimizer;
  options.optimizer_count = 1;
  options.rank0_only = rank0_only ? 1 : 0;
  meron_checkpoint loaded{};
  MUST(meron_checkpoint_load, &loaded, session.context, folder.c_str(), nullptr, &options);
  MUST(meron_checkpoint_release, loaded);
}

void build_small(Session& session) {
  session.build();
}

void save(const std::string& folder, void (*build)(Session&) = build_small) {
  const Open open = world_of(30 * kSecond);
  Job job(kRanks, [&](int rank, Report&) {
    Session session(open, rank);
    build(session);
    meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    options.optimizers = &session.optimizer;
    options.optimizer_count = 1;
    meron_future saved{};
    MUST(meron_checkpoint_save_begin, &saved, session.context, folder.c_str(), "one", &options);
    session.wait(saved);
    session.close();
  });
  ASSERT_TRUE(job.wait(60 * kSecond));
}

// Rank 1 gets `signal` within its load. Rank 0 arrives later, and no rank continues before.
void expect_named(const std::string& folder, int signal, bool rank0_only) {
  const Open open = world_of(kTimeout);
  Shared<std::atomic<pid_t>> stopped(1);
  Job job(kRanks, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.barrier();
    if (rank == 1) {
      stopped[0].store(getpid());
      std::thread([signal] {
        sleep_ns(100 * kMilli);
        kill(getpid(), signal);
      }).detach();
    }
    if (rank == 0) sleep_ns(200 * kMilli);
    report.times[0] = now_ns();
    try {
      load(session, folder, rank0_only);
    } catch (const CallFailed&) {
      if (rank != 0) throw;
      sleep_ns(300 * kMilli);  // rank 2 sees the same
      kill(stopped[0].load(), SIGKILL);
      throw;
    }
  });
  EXPECT_TRUE(job.wait(30 * kSecond)) << "the load hung";
  for (const int rank : {0, 2}) {
    const Report& report = job[rank];
    SCOPED_TRACE(report.message);
    EXPECT_EQ(report.status, signal == SIGSTOP ? MERON_E_TIMEOUT : MERON_E_PEER_DEAD);
    EXPECT_EQ(report.peer, 1);
    EXPECT_NE(std::string(report.message).find("rank 1"), std::string::npos);
    const int64_t waited = report.failed_ns - report.times[0];
    EXPECT_LE(waited, 2 * kTimeout + kTolerance);
    if (signal == SIGSTOP && rank == 0) {
      EXPECT_GE(waited, 2 * kTimeout);
    }
  }
}

TEST(LoadFault, AStoppedRankIsNamedAfterTwiceTheTimeout) {
  const Folder folder;
  save(folder.path);
  for (const bool rank0_only : {false, true}) expect_named(folder.path, SIGSTOP, rank0_only);
}

// Shared state of the ranks: the stop of rank 1, and its end.
struct Pause {
  std::atomic<pid_t> stopped;
  std::atomic<int> over;
};

constexpr int kUnits = 6;
void build_large(Session& session) {
  for (int u = 0; u < kUnits; ++u) {
    const std::string name = "u" + std::to_string(u);
    session.make_unit(name, {session.register_param(name + ".weight", {1024, 1024})});
  }
  session.make_optimizer();
}

uint64_t version_of(meron_unit unit) {
  meron_unit_info info{};
  info.struct_size = sizeof(info);
  MUST(meron_unit_get_info, &info, unit);
  return info.version;
}

// Rank 1 stops after it has loaded the unit, and continues before the others time out.
void expect_waited_for(const std::string& folder, size_t unit, bool rank0_only) {
  const Open open = world_of(kLongTimeout);
  Shared<Pause> pause(1);
  Job job(kRanks, [&](int rank, Report&) {
    Session session(open, rank);
    build_large(session);
    session.barrier();
    std::thread stopping;
    if (rank == 1) {
      stopping = std::thread([&pause, watched = session.units[unit]] {
        const uint64_t before = version_of(watched);
        while (version_of(watched) == before) sleep_ns(kMilli / 20);
        pause[0].stopped = getpid();
        kill(getpid(), SIGSTOP);
      });
    }
    sleep_ns(20 * kMilli);  // it watches
    load(session, folder, rank0_only);
    while (pause[0].over.load() == 0) sleep_ns(kMilli);
    if (stopping.joinable()) stopping.join();
    session.close();
  });
  const int64_t limit = now_ns() + 30 * kSecond;
  while (pause[0].stopped.load() == 0 && now_ns() < limit) sleep_ns(kMilli / 10);
  ASSERT_NE(pause[0].stopped.load(), 0);
  sleep_ns(kLongTimeout + kLongTimeout / 4);
  kill(pause[0].stopped, SIGCONT);
  pause[0].over = 1;
  EXPECT_TRUE(job.wait(30 * kSecond)) << "the load hung";
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(job[rank].status, MERON_OK) << "rank " << rank << ": " << job[rank].message;
  }
}

TEST(LoadFault, WaitsForARankThatContinuesWithinTwiceTheTimeout) {
  const Folder folder;
  save(folder.path, build_large);
  for (const bool rank0_only : {false, true}) {
    for (const size_t unit : {size_t{0}, size_t{2}, size_t{4}}) {
      SCOPED_TRACE(std::to_string(unit) + (rank0_only ? " by rank 0" : ""));
      expect_waited_for(folder.path, unit, rank0_only);
    }
  }
}

TEST(LoadFault, ADeadRankIsNamed) {
  const Folder folder;
  save(folder.path);
  for (const bool rank0_only : {false, true}) expect_named(folder.path, SIGKILL, rank0_only);
}

}  // namespace
}  // namespace meron::test
