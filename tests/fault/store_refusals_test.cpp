// SPDX-License-Identifier: Apache-2.0
// What becomes of ranks in a directory (MERON_STORE) that miss others, are doubled, of another
// version or size, or cannot use the directory.
#include <sys/stat.h>

#include "tests/fault/store.h"

namespace meron::test {
namespace {

TEST_F(StoreTest, NamesTheMissingRanks) {
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

// Two jobs that cannot be distinguished: the earlier gets an error, the later continues.
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

// In the place of rank 1's card, of rank 0's, and of the outcome that rank 1 reads.
TEST_F(StoreTest, KeepsDeadlinesIfAPipeReplacesAFile) {
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

TEST_F(StoreTest, ReleasesRanksThatAreAskedToStop) {
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

// Shared memory connects the ranks of one node only; another transport must connect nodes.
TEST_F(StoreTest, ReportsThatNoTransportConnectsNodes) {
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

}  // namespace
}  // namespace meron::test
