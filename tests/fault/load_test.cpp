// SPDX-License-Identifier: Apache-2.0
// A rank stops or dies while all load. The others give it twice the timeout for each agreement, as
// its drive may be slow, and then name it.
#include <filesystem>

#include "tests/fault/job.h"

namespace meron::test {
namespace {

constexpr int64_t kTimeout = 400 * kMilli;
constexpr int64_t kTolerance = kSecond;
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

void save(const std::string& folder) {
  const Open open = world_of(30 * kSecond);
  Job job(kRanks, [&](int rank, Report&) {
    Session session(open, rank);
    session.build();
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

// Rank 1 gets `signal` within its load: rank 0, without which no rank goes on, comes later.
void expect_named(const std::string& folder, int signal, bool rank0_only) {
  const Open open = world_of(kTimeout);
  std::atomic<pid_t>* const stopped = static_cast<std::atomic<pid_t>*>(
      mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
           -1, 0));
  Job job(kRanks, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.barrier();
    if (rank == 1) {
      stopped->store(getpid());
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
      kill(stopped->load(), SIGKILL);
      throw;
    }
  });
  EXPECT_TRUE(job.wait(30 * kSecond)) << "the load hung";
  munmap(stopped, sizeof(*stopped));
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

TEST(LoadFault, ADeadRankIsNamed) {
  const Folder folder;
  save(folder.path);
  for (const bool rank0_only : {false, true}) expect_named(folder.path, SIGKILL, rank0_only);
}

}  // namespace
}  // namespace meron::test
