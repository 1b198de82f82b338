// SPDX-License-Identifier: Apache-2.0
// Rendezvous in a directory (MERON_STORE), beside other jobs and the files of killed ones. Failures
// are in store_refusals_test.cpp.
#include "tests/fault/store.h"

namespace meron::test {
namespace {

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

// Files that killed jobs left, of this name and at any point, are ignored.
TEST_F(StoreTest, IgnoresFilesOfKilledJobs) {
  for (int trial = 0; trial < 10; ++trial) {
    Job killed(3, [&](int rank, Report& report) {
      set(rank, trial % 2 == 0 ? 4 : 3);
      Session session(by_environment(trial % 2 == 0 ? 4 : 3), rank);
      report.mark = 1;
      while (true) pause();
    });
    const int looked_at = trial % 3;
    while (!fs::exists(card(looked_at)) && killed[looked_at].mark == 0 &&
           killed[looked_at].ended == 0) {
      sleep_ns(kMilli);
    }
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
