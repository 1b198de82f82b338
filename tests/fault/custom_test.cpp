// SPDX-License-Identifier: Apache-2.0
// What ranks of a custom transport do when one dies, stops, diverges or leaves, and when the table
// or the transport itself is at fault: the same as those of Meron's own.
#include "tests/fault/job.h"

namespace meron::test {
namespace {

// Ranks as processes that reach each other over sockets only.
class SocketJob {
 public:
  using Main = std::function<void(Session& session, Report& report)>;

  SocketJob(int ranks, const Main& main, int64_t timeout_ns = 10 * kSecond,
            const std::function<void(int rank, meron_context_options&, meron_transport&)>& adjust =
                nullptr)
      : mesh_(ranks), job_(ranks, [=, this](int rank, Report& report) {
          SocketTransport transport(mesh_.take(rank));
          mesh_.drop();
          meron_transport table = transport.table();
          Open open;
          open.ranks = ranks;
          open.transport = "custom";
          open.timeout_ns = timeout_ns;
          open.adjust = [&](int own, meron_context_options& options) {
            options.custom = &table;
            if (adjust) adjust(own, options, table);
          };
          Session session(open, rank);
          main(session, report);
          report.numbers[7] = transport.closed() ? 1 : 0;
        }) {
    mesh_.drop();
  }
  Job* operator->() { return &job_; }
  Report& operator[](int rank) { return job_[rank]; }

 private:
  SocketMesh mesh_;
  Job job_;
};

void expect_failed(const Report& report, meron_status status,
                   std::initializer_list<const char*> texts) {
  SCOPED_TRACE(std::string(report.function) + ": " + report.message);
  EXPECT_EQ(status, report.status) << meron_status_name(report.status);
  for (const char* text : texts) EXPECT_NE(nullptr, std::strstr(report.message, text)) << text;
}

void train(Session& session, Report& report) {
  session.build();
  report.mark = 1;
  while (true) {
    for (size_t u = 0; u < 2; ++u) session.gather(u);
    for (size_t u = 0; u < 2; ++u) session.reduce(u, 0.5f);
    session.step();
    session.barrier();
    session.broadcast(40'000, 0);
    session.all_reduce(9'000);
  }
}

TEST(CustomTransport, SurvivorsNameTheDead) {
  Random random(test_seed());
  Times detected;
  for (int trial = 0; trial < (kSanitized ? 6 : 30); ++trial) {
    SocketJob job(3, train);
    const int victim = random.below(3);
    SCOPED_TRACE("trial " + std::to_string(trial) + ", rank " + std::to_string(victim));
    ASSERT_TRUE(job->reached(1));
    sleep_ns(random.below(20'000) * int64_t{1000});
    const int64_t killed = now_ns();
    job->signal(victim, SIGKILL);
    ASSERT_TRUE(job->wait(20 * kSecond)) << "a survivor hangs";
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      expect_failed(job[rank], MERON_E_PEER_DEAD, {"cannot be reached", "sockets"});
      EXPECT_EQ(victim, job[rank].peer);
      EXPECT_LT(job[rank].failed_ns - killed, 2 * kSecond);
      detected.add(job[rank].failed_ns - killed);
    }
    ASSERT_FALSE(HasFailure());
  }
  detected.print("named after");
}

TEST(CustomTransport, DivergingRanksGetBothCalls) {
  struct {
    const char* name;
    std::function<void(Session&)> other;
    std::initializer_list<const char*> says;
  } const cases[] = {
      {"another call", [](Session& session) { session.barrier(); }, {"gather of 'u0'", "barrier"}},
      {"another unit", [](Session& session) { session.gather(1); }, {"gather of 'u0'", "'u1'"}},
      {"a call less", [](Session& session) { session.step(); }, {"gather of 'u0'", "step"}},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.name);
    SocketJob job(2, [&](Session& session, Report& report) {
      session.build();
      session.reduce(0, 1.0f);
      session.reduce(1, 1.0f);
      report.times[0] = now_ns();
      if (session.rank == 0) {
        session.gather(0);
      } else {
        each.other(session);
      }
      // If the call itself needed nothing from the peer, the next one reports the error.
      session.barrier();
    });
    ASSERT_TRUE(job->wait(20 * kSecond));
    for (int rank = 0; rank < 2; ++rank) {
      expect_failed(job[rank], MERON_E_MISMATCH, each.says);
      EXPECT_LT(job[rank].failed_ns - job[rank].times[0], kSecond);
    }
  }
}

// Neither rank can see the other's call when it begins its own: both continue until an operation
// that needs both reports the difference.
TEST(CustomTransport, CallsThatNeedNoAnswerAreComparedLater) {
  for (int trial = 0; trial < 20; ++trial) {
    SocketJob job(2, [&](Session& session, Report& report) {
      const char* name = session.rank == 0 ? "left" : "right";
      session.barrier();
      const meron_param param = session.register_param(name, {40});
      session.make_unit("u", {param});
      session.units.push_back(session.units.back());
      report.numbers[0] = 1;
      session.update(0, 1.0f);
      report.numbers[0] = 2;
    });
    ASSERT_TRUE(job->wait(20 * kSecond));
    for (int rank = 0; rank < 2; ++rank) {
      expect_failed(job[rank], MERON_E_MISMATCH, {"of 'left", "of 'right"});
      EXPECT_LT(job[rank].numbers[0], 2) << "an update of different params ended well";
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(CustomTransport, ARankThatLeavesEarlyIsNamed) {
  SocketJob job(3, [](Session& session, Report&) {
    session.build();
    session.gather(0);
    if (session.rank == 2) return session.close();
    session.gather(1);
  });
  ASSERT_TRUE(job->wait(20 * kSecond));
  EXPECT_EQ(MERON_OK, job[2].status) << job[2].message;
  EXPECT_EQ(1, job[2].numbers[7]) << "the transport was not told that it is not used any more";
  for (int rank = 0; rank < 2; ++rank) {
    expect_failed(job[rank], MERON_E_PEER_CLOSED, {"rank 2 closed"});
    EXPECT_EQ(2, job[rank].peer);
  }
}

TEST(CustomTransport, AStoppedRankEndsTheWaitAtTheDeadline) {
  SocketJob job(
      2,
      [](Session& session, Report& report) {
        session.build();
        report.mark = 1;
        while (session.rank == 1) pause();
        report.times[0] = now_ns();
        session.gather(0);
      },
      500 * kMilli);
  ASSERT_TRUE(job->reached(1));
  while (__atomic_load_n(&job[0].ended, __ATOMIC_ACQUIRE) == 0) sleep_ns(kMilli);
  const int64_t waited = job[0].failed_ns - job[0].times[0];
  job->signal(1, SIGKILL);
  ASSERT_TRUE(job->wait(5 * kSecond));
  expect_failed(job[0], MERON_E_TIMEOUT, {"rank 1"});
  EXPECT_GE(waited, 450 * kMilli);
  EXPECT_LT(waited, 3 * kSecond);
}

TEST(CustomTransport, AbortReachesEveryRank) {
  SocketJob job(3, [](Session& session, Report&) {
    session.build();
    session.barrier();
    if (session.rank == 1) {
      sleep_ns(20 * kMilli);
      MUST(meron_group_abort, session.world, "the loss is NaN");
    }
    session.gather(0);
  });
  ASSERT_TRUE(job->wait(20 * kSecond));
  for (int rank = 0; rank < 3; ++rank)
    expect_failed(job[rank], MERON_E_ABORTED, {"the loss is NaN"});
}

TEST(CustomTransport, RanksOfDifferentWorldsFail) {
  SocketJob job(
      3, [](Session&, Report&) {}, 3 * kSecond,
      [](int rank, meron_context_options& options, meron_transport&) {
        if (rank == 1) options.world_size = 2;
      });
  ASSERT_TRUE(job->wait(20 * kSecond));
  for (int rank = 0; rank < 2; ++rank) expect_failed(job[rank], MERON_E_MISMATCH, {"world"});
}

TEST(CustomTransport, ARankThatNeverComesIsNamed) {
  SocketJob job(
      2, [](Session&, Report&) {}, 500 * kMilli,
      [](int rank, meron_context_options&, meron_transport&) {
        while (rank == 1) pause();
      });
  while (__atomic_load_n(&job[0].ended, __ATOMIC_ACQUIRE) == 0) sleep_ns(kMilli);
  job->signal(1, SIGKILL);
  ASSERT_TRUE(job->wait(5 * kSecond));
  expect_failed(job[0], MERON_E_TIMEOUT, {"missing: rank 1"});
}

TEST(CustomTransport, TablesThatLackSomethingAreRefused) {
  struct {
    std::function<void(meron_context_options&, meron_transport&)> spoil;
    const char* says;
  } const cases[] = {
      {[](auto&, auto& table) { table.send = nullptr; }, "'send'"},
      {[](auto&, auto& table) { table.receive = nullptr; }, "'receive'"},
      {[](auto&, auto& table) { table.test = nullptr; }, "'test'"},
      {[](auto&, auto& table) { table.cancel = nullptr; }, "'cancel'"},
      {[](auto&, auto& table) { table.max_message = 100; }, "max_message is 100"},
      {[](auto&, auto& table) { table.reserved_0 = 1; }, "reserved_0"},
      {[](auto& options, auto&) { options.custom = nullptr; }, "custom transport"},
      {[](auto& options, auto&) { options.transport = "shm"; }, "'shm'"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.says);
    SocketJob job(
        2, [](Session&, Report&) {}, kSecond,
        [&](int, meron_context_options& options, meron_transport& table) {
          each.spoil(options, table);
        });
    ASSERT_TRUE(job->wait(5 * kSecond));
    for (int rank = 0; rank < 2; ++rank) expect_failed(job[rank], MERON_E_ARGUMENT, {each.says});
  }
}

TEST(CustomTransport, AFunctionThatFailsEndsTheUseOfThePeer) {
  SocketJob job(
      2,
      [](Session& session, Report&) {
        session.build();
        session.barrier();
      },
      5 * kSecond,
      [](int rank, meron_context_options&, meron_transport& table) {
        if (rank == 1) {
          table.send = [](void*, uint64_t*, int32_t, uint64_t, const void*,
                          uint64_t) -> meron_status { return MERON_E_IO; };
        }
      });
  ASSERT_TRUE(job->wait(20 * kSecond));
  expect_failed(job[1], MERON_E_PEER_DEAD, {"rank 0", "MERON_E_IO"});
  // Rank 1 cannot send its error: rank 0 notices when rank 1 has closed.
  EXPECT_LT(job[0].status, 0) << "rank 0 believes that all is well";
}

// Who cannot receive can still send, and says why it goes.
TEST(CustomTransport, AReceiveThatFailsIsReportedToThePeer) {
  SocketJob job(
      2,
      [](Session& session, Report& report) {
        session.build();
        session.barrier();
        report.times[0] = now_ns();
        session.gather(0);
        session.gather(1);
        session.barrier();
      },
      20 * kSecond,
      [](int rank, meron_context_options&, meron_transport& table) {
        static decltype(table.receive) receive = table.receive;
        if (rank != 1) return;
        table.receive = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, void* data,
                           uint64_t bytes) -> meron_status {
          if (tag != 0) return MERON_E_IO;
          return receive(user, request, peer, tag, data, bytes);
        };
      });
  ASSERT_TRUE(job->wait(20 * kSecond));
  expect_failed(job[1], MERON_E_PEER_DEAD, {"rank 0", "MERON_E_IO"});
  expect_failed(job[0], MERON_E_PEER_DEAD, {"found by rank 1", "MERON_E_IO"});
  EXPECT_LT(job[0].failed_ns - job[0].times[0], 2 * kSecond);
}

// Small messages, and a transport that takes nothing at first.
TEST(CustomTransport, MessagesAreCutAndOfferedAgain) {
  static int refusals = 0;
  static decltype(meron_transport::send) real_send = nullptr;
  SocketJob job(
      3,
      [](Session& session, Report& report) {
        session.build();
        for (int step = 0; step < 5; ++step) {
          session.reduce(0, 1.0f);
          session.reduce(1, 1.0f);
          session.step();
          session.gather(0);
          session.broadcast(100'000, 1);
          report.numbers[0] += session.all_reduce(50'000) == 3.0f ? 1 : 0;
        }
        session.barrier();
        session.close();
        report.numbers[1] = refusals;
      },
      10 * kSecond,
      [](int, meron_context_options&, meron_transport& table) {
        table.max_message = 4096;
        real_send = table.send;
        table.send = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, const void* data,
                        uint64_t bytes) -> meron_status {
          if (bytes > 4096) std::abort();
          if (++refusals % 3 != 0) return MERON_IN_PROGRESS;
          return real_send(user, request, peer, tag, data, bytes);
        };
      });
  ASSERT_TRUE(job->wait(30 * kSecond));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
    EXPECT_EQ(5, job[rank].numbers[0]);
    EXPECT_GT(job[rank].numbers[1], 100);
  }
}

// Memory that a gather needs for peers' values goes when its last lease does.
TEST(CustomTransport, GatheredValuesAreGivenBack) {
  SocketJob job(2, [](Session& session, Report& report) {
    const meron_param weight = session.register_param("large.weight", {512, 1024});
    session.make_unit("large", {weight});
    session.units.push_back(session.units.back());
    const auto bytes = [&] {
      meron_stats stats{};
      stats.struct_size = sizeof stats;
      MUST(meron_context_stats, &stats, session.context);
      return static_cast<int32_t>((stats.param_bytes + stats.staging_bytes) >> 10);
    };
    report.numbers[0] = bytes();
    meron_future first{}, second{};
    MUST(meron_gather_begin, &first, session.units.data(), 1, nullptr);
    MUST(meron_gather_begin, &second, session.units.data(), 1, nullptr);
    MUST(meron_future_wait, first, MERON_TIMEOUT_DEFAULT);
    MUST(meron_future_wait, second, MERON_TIMEOUT_DEFAULT);
    MUST(meron_future_release, first);
    report.numbers[1] = bytes();
    // Ranks need not agree on when they release.
    if (session.rank == 1) MUST(meron_future_release, second);
    meron_future third{};
    MUST(meron_gather_begin, &third, session.units.data(), 1, nullptr);
    MUST(meron_future_wait, third, MERON_TIMEOUT_DEFAULT);
    if (session.rank == 0) MUST(meron_future_release, second);
    MUST(meron_future_release, third);
    session.barrier();
    report.numbers[2] = bytes();
    session.close();
  });
  ASSERT_TRUE(job->wait(20 * kSecond));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
    EXPECT_EQ(1024, job[rank].numbers[0]);
    EXPECT_EQ(2048, job[rank].numbers[1]);
    EXPECT_EQ(1024, job[rank].numbers[2]);
  }
}

}  // namespace
}  // namespace meron::test
