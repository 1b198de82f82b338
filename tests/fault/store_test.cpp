// SPDX-License-Identifier: Apache-2.0
// How ranks find each other by a directory (MERON_STORE), and what becomes of those that are
// missing, late, left over, doubled, of another version, or of another job.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fault/job.h"

namespace meron::test {
namespace {

namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "store-XXXXXX").string();
    ASSERT_NE(nullptr, mkdtemp(path.data()));
    directory_ = path;
  }
  void TearDown() override { fs::remove_all(directory_); }

  // As a launcher would start a rank: by variables alone.
  void set(int rank, int ranks, const char* job = "a") const {
    for (const char* name : {"MERON_TOKEN", "MERON_TOKEN_FD", "MERON_NODE", "MERON_HOST"}) {
      unsetenv(name);
    }
    setenv("MERON_STORE", directory_.c_str(), 1);
    setenv("MERON_JOB", job, 1);
    setenv("MERON_RANK", std::to_string(rank).c_str(), 1);
    setenv("MERON_WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  }

  static Open by_environment(int ranks, int64_t timeout_ns = 20 * kSecond) {
    Open open;
    open.ranks = ranks;
    open.timeout_ns = timeout_ns;
    open.adjust = [](int, meron_context_options& options) {
      options.rank = options.world_size = -1;
      options.transport = nullptr;
      options.token = options.job = nullptr;
    };
    return open;
  }
  static void meet(const Open& open, int rank) {
    Session session(open, rank);
    session.barrier();
    session.close();
  }

  fs::path folder(const char* job = "a") const {
    return directory_ / (std::string("meron-") + job);
  }
  fs::path card(int rank) const { return folder() / ("rank-" + std::to_string(rank)); }
  std::string read(const fs::path& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const fs::path& path, const std::string& text) const { std::ofstream(path) << text; }
  void await(const fs::path& path) const {
    while (!fs::exists(path)) sleep_ns(kMilli);
  }
  // What rank 0 says that it is, as an answer of rank 1 that differs in `from`.
  std::string answer_of_rank_1(const std::string& from, const std::string& to) const {
    await(card(0));
    std::string text = read(card(0));
    const auto replace = [&](const std::string& old, const std::string& with) {
      const size_t at = text.find(old);
      ASSERT_NE(std::string::npos, at) << text;
      text.replace(at, old.size(), with);
    };
    replace("\"rank\":0", "\"rank\":1");
    replace("\"number\":\"", "\"number\":\"1");
    replace(from, to);
    return text;
  }
  // Nothing of any job.
  void expect_empty() const { EXPECT_TRUE(fs::is_empty(directory_)) << *fs::begin(list()); }
  fs::recursive_directory_iterator list() const {
    return fs::recursive_directory_iterator(directory_);
  }

  fs::path directory_;
};

void expect_met(Job& job) {
  ASSERT_TRUE(job.wait(40 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << "process " << rank << ": " << job[rank].message;
  }
}

void expect_failed(const Report& report, meron_status status,
                   const std::vector<std::string>& texts) {
  const std::string said = std::string(report.message) + " / " + report.advice;
  SCOPED_TRACE(said);
  EXPECT_EQ(status, report.status) << meron_status_name(report.status);
  for (const std::string& text : texts) EXPECT_NE(std::string::npos, said.find(text)) << text;
}

TEST_F(StoreTest, ServesAPlainLoopAndLeavesNothing) {
  for (const int ranks : {1, 2, 5}) {
    Job job(ranks, [&](int rank, Report& report) {
      set(rank, ranks);
      Session session(by_environment(ranks), rank);
      report.numbers[0] = static_cast<int32_t>(session.all_reduce(3));
      session.close();
    });
    expect_met(job);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(ranks, job[rank].numbers[0]);
    expect_empty();
  }
}

TEST_F(StoreTest, ServesContextsInTurn) {
  Job job(3, [&](int rank, Report&) {
    set(rank, 3);
    for (int i = 0; i < 10; ++i) meet(by_environment(3), rank);
  });
  expect_met(job);
  expect_empty();
}

TEST_F(StoreTest, TakesTheNameOfTheJobFromTheLauncher) {
  Job job(2, [&](int rank, Report&) {
    set(rank, 2);
    unsetenv("MERON_JOB");
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_STEP_ID", "3", 1);
    if (rank == 1) await(folder("77-3"));
    meet(by_environment(2), rank);
  });
  expect_met(job);
}

TEST_F(StoreTest, IsNotAskedWhereThereIsAToken) {
  Job job(2, [&](int rank, Report&) {
    set(rank, 2);
    setenv("MERON_STORE", "/nowhere", 1);
    setenv("MERON_TOKEN", std::string(64, '7').c_str(), 1);
    meet(by_environment(2), rank);
  });
  expect_met(job);
}

TEST_F(StoreTest, NamesWhoIsMissing) {
  Job job(4, [&](int process, Report&) {
    const int rank = process == 2 ? 4 : process;  // 2 and 5 are not started
    set(rank, 6);
    setenv("MERON_HOST", rank < 2 ? "north" : "south", 1);
    setenv("MERON_NODE", rank < 2 ? "north" : "south", 1);
    meet(by_environment(6, kSecond), rank);
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  for (int process = 0; process < 4; ++process) {
    expect_failed(job[process], MERON_E_TIMEOUT,
                  {"4 of 6 ranks came in time", "ranks 0-1 on host north; ranks 3-4 on host south",
                   "missing: ranks 2, 5", "MERON_STORE"});
    EXPECT_EQ(2, job[process].peer);
  }
  expect_empty();
}

TEST_F(StoreTest, NamesRank0WhereThatIsMissing) {
  Job job(2, [&](int process, Report&) {
    set(process + 1, 3);
    meet(by_environment(3, kSecond / 2), process + 1);
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  for (int process = 0; process < 2; ++process) {
    expect_failed(job[process], MERON_E_TIMEOUT, {"rank 0 did not come"});
    EXPECT_EQ(0, job[process].peer);
  }
  expect_empty();
}

TEST_F(StoreTest, KeepsJobsApart) {
  Job job(6, [&](int process, Report& report) {
    const int ranks = process < 2 ? 2 : 4;
    const int rank = process < 2 ? process : process - 2;
    set(rank, ranks, process < 2 ? "small" : "large");
    Session session(by_environment(ranks), rank);
    report.numbers[0] = static_cast<int32_t>(session.all_reduce(1));
    session.close();
  });
  expect_met(job);
  for (int process = 0; process < 6; ++process) {
    EXPECT_EQ(process < 2 ? 2 : 4, job[process].numbers[0]);
  }
  expect_empty();
}

// Two jobs that cannot be told apart: the earlier is told, the later goes on.
TEST_F(StoreTest, TellsTheEarlierOfTwoRanksOfOneNumber) {
  for (const int twice : {0, 1}) {
    SCOPED_TRACE(twice);
    Shared<std::atomic<int>> control(1);
    Job job(4, [&](int process, Report&) {
      const int rank = process == 0 ? twice : process - 1;
      if (process > 0) {
        await(card(twice));
        while (process - 1 != twice && control[0].load() == 0) sleep_ns(kMilli);
      }
      set(rank, 3);
      try {
        meet(by_environment(3), rank);
      } catch (const CallFailed&) {
        control[0] = 1;
        throw;
      }
    });
    ASSERT_TRUE(job.wait(40 * kSecond));
    expect_failed(job[0], MERON_E_DUPLICATE,
                  {"another process", "rank " + std::to_string(twice), "pid", "MERON_JOB"});
    for (int process = 1; process < 4; ++process) {
      EXPECT_EQ(MERON_OK, job[process].status) << job[process].message;
    }
    expect_empty();
  }
}

TEST_F(StoreTest, TakesInARankThatIsStartedAgain) {
  for (const int again : {0, 1}) {
    SCOPED_TRACE(again);
    Job first(2, [&](int rank, Report&) {
      set(rank, 3);
      meet(by_environment(3), rank);
    });
    await(card(again));
    first.signal(again, SIGKILL);
    Job rest(2, [&](int process, Report&) {
      const int rank = process == 0 ? again : 2;
      set(rank, 3);
      meet(by_environment(3), rank);
    });
    expect_met(rest);
    ASSERT_TRUE(first.wait(20 * kSecond));
    EXPECT_EQ(MERON_OK, first[1 - again].status) << first[1 - again].message;
    expect_empty();
  }
}

// What killed jobs left, of this name and at any point, is nobody's.
TEST_F(StoreTest, IsNotMisledByWhatWasLeft) {
  for (int trial = 0; trial < 10; ++trial) {
    Job killed(3, [&](int rank, Report&) {
      set(rank, trial % 2 == 0 ? 4 : 3);
      Session session(by_environment(trial % 2 == 0 ? 4 : 3), rank);
      while (true) pause();
    });
    await(card(trial % 3));
    sleep_ns(trial * 2 * kMilli);
    for (int rank = 0; rank < 3; ++rank) killed.signal(rank, SIGKILL);
    (void)killed.wait(5 * kSecond);
    if (!fs::exists(folder())) continue;  // it had met
    write(card(2), trial % 3 == 0 ? "{\"rank\":2,\"number\":" : "");
    write(folder() / "met-", "{}");
    write(folder() / "rank-2.0123456789abcdef", "{\"rank\":");  // killed while it wrote
    Job job(3, [&](int rank, Report&) {
      set(rank, 3);
      if (rank == trial % 3) sleep_ns(30 * kMilli);
      meet(by_environment(3), rank);
    });
    expect_met(job);
    for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(fs::exists(card(rank)));
  }
}

// In the place of rank 1's card, of rank 0's, and of the outcome that rank 1 reads.
TEST_F(StoreTest, KeepsDeadlinesWhereAPipeLies) {
  for (const int rank : {0, 1}) {
    fs::create_directory(folder());
    fs::permissions(folder(), fs::perms::owner_all);
    ASSERT_EQ(0, mkfifo(card(1 - rank).c_str(), 0600));
    Job job(1, [&](int, Report&) {
      set(rank, 2);
      meet(by_environment(2, kSecond), rank);
    });
    ASSERT_TRUE(job.wait(5 * kSecond)) << "rank " << rank << " waits for the pipe";
    EXPECT_EQ(MERON_E_TIMEOUT, job[0].status) << job[0].message;
    EXPECT_NE(nullptr, std::strstr(job[0].message, rank == 0 ? "rank 1" : "rank 0"));
    fs::remove_all(folder());
  }
}

TEST_F(StoreTest, RefusesOtherVersionsAndNamesBoth) {
  Job job(2, [&](int process, Report&) {
    const int rank = process == 0 ? 0 : 2;
    set(rank, 3);
    setenv("MERON_HOST", "north", 1);
    meet(by_environment(3), rank);
  });
  const std::string own = "\"version\":\"" + std::string(meron_version_string()) + "\"";
  await(card(2));
  write(card(1), answer_of_rank_1(own, "\"version\":\"9.8.7\""));
  ASSERT_TRUE(job.wait(20 * kSecond));
  expect_failed(job[0], MERON_E_VERSION,
                {"rank 1", "9.8.7", "rank 0", meron_version_string(), "on host north"});
  expect_failed(job[1], MERON_E_VERSION, {"rank 1", "9.8.7", meron_version_string()});
}

TEST_F(StoreTest, RefusesWorldsOfOtherSizes) {
  Job job(2, [&](int rank, Report&) {
    set(rank, rank == 0 ? 2 : 3);
    meet(by_environment(rank == 0 ? 2 : 3), rank);
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  for (int rank = 0; rank < 2; ++rank) {
    expect_failed(job[rank], MERON_E_MISMATCH, {"rank 1", "3 ranks", "rank 0 says 2"});
  }
  expect_empty();
}

TEST_F(StoreTest, RefusesDirectoriesThatCannotServe) {
  const fs::path file = directory_ / "file";
  write(file, "");
  fs::create_directory(directory_ / "meron-open");
  fs::permissions(directory_ / "meron-open", fs::perms::all);
  fs::create_directory_symlink("/tmp", directory_ / "meron-link");
  const std::string here = directory_.string(), long_name(200, 'x');
  struct {
    std::string directory;
    const char* job;
    meron_status status;
    std::vector<std::string> says;
  } const cases[] = {
      {"/nowhere", "a", MERON_E_NOT_FOUND, {"/nowhere", "MERON_STORE", "all hosts"}},
      {file.string(), "a", MERON_E_IO, {file.string(), "MERON_STORE"}},
      {"/sys", "a", MERON_E_IO, {"/sys/meron-a", "may write"}},  // not even by root
      {here, "open", MERON_E_AUTH, {"mode 777", "chmod 700"}},
      {here, "link", MERON_E_AUTH, {"no directory"}},
      {here, long_name.c_str(), MERON_E_ARGUMENT, {"200 bytes", "MERON_JOB"}},
  };
  for (const auto& each : cases) {
    Job job(1, [&](int rank, Report&) {
      set(rank, 2, each.job);
      setenv("MERON_STORE", each.directory.c_str(), 1);
      meet(by_environment(2), rank);
    });
    ASSERT_TRUE(job.wait(10 * kSecond)) << each.directory;
    expect_failed(job[0], each.status, each.says);
  }
}

TEST_F(StoreTest, LetsGoWhoeverIsAskedToStop) {
  for (const int impatient : {0, 1}) {
    Job job(1, [&](int, Report&) {
      set(impatient, 2);
      Open open = by_environment(2);
      const auto from_environment = open.adjust;
      open.adjust = [=](int own, meron_context_options& options) {
        from_environment(own, options);
        options.should_stop = [](void*) -> int32_t { return 1; };
      };
      meet(open, impatient);
    });
    ASSERT_TRUE(job.wait(10 * kSecond));
    expect_failed(job[0], MERON_E_CANCELLED, {"should_stop"});
    expect_empty();
  }
}

// Memory reaches no further than a node; bytes between nodes are somebody else's.
TEST_F(StoreTest, SaysThatNothingJoinsNodes) {
  Job job(4, [&](int rank, Report&) {
    set(rank, 4);
    setenv("MERON_NODE", rank % 2 == 0 ? "north" : "south", 1);
    setenv("MERON_HOST", rank % 2 == 0 ? "north" : "south", 1);
    meet(by_environment(4), rank);
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  for (int rank = 0; rank < 4; ++rank) {
    expect_failed(
        job[rank], MERON_E_UNSUPPORTED,
        {"2 nodes", "ranks 0, 2 on host north; ranks 1, 3 on host south", "mpirun", "'cluster'"});
  }
  expect_empty();
}

TEST_F(StoreTest, GoesBeforeATransportOfTheCallers) {
  for (const char* transport : {"cluster", "custom"}) {
    for (const bool missing : {false, true}) {
      SocketMesh mesh(4);
      Job job(missing ? 3 : 4, [&](int rank, Report& report) {
        SocketTransport sockets(mesh.take(rank));
        mesh.drop();
        meron_transport table = sockets.table();
        set(rank, 4);
        setenv("MERON_NODE", rank < 2 ? "north" : "south", 1);
        Open open = by_environment(4, missing ? kSecond : 20 * kSecond);
        const auto from_environment = open.adjust;
        open.adjust = [&](int own, meron_context_options& options) {
          from_environment(own, options);
          options.transport = transport;
          options.custom = &table;
        };
        Session session(open, rank);
        report.numbers[0] = static_cast<int32_t>(session.all_reduce(5));
        session.barrier();
        session.close();
      });
      mesh.drop();
      if (!missing) {
        expect_met(job);
        for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(4, job[rank].numbers[0]);
      } else {
        ASSERT_TRUE(job.wait(20 * kSecond));
        for (int rank = 0; rank < 3; ++rank) {
          expect_failed(job[rank], MERON_E_TIMEOUT, {"3 of 4 ranks", "missing: rank 3"});
        }
      }
      expect_empty();
    }
  }
}

}  // namespace
}  // namespace meron::test
