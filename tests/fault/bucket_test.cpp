// SPDX-License-Identifier: Apache-2.0
// Gradient buckets that reductions keep: a wait for one reports a reduction that will never end.
#include "tests/fault/outcomes.h"

namespace meron::test {
namespace {

// All buckets belong to reductions that wait for a closed peer. A wait for a bucket reports that
// peer, although the wait itself does not need it.
TEST(Buckets, ABucketThatIsNeverFreeFailsWithItsReduction) {
  constexpr size_t kCount = 1000;
  const Open open = open_shm(2);  // zero3: two buckets
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    for (const char* name : {"a", "b", "c"}) {
      session.make_unit(name, {session.register_param(std::string(name) + ".weight", {kCount})});
    }
    session.barrier();
    then_close(session, [&] {
      if (rank != 0) return;
      const std::vector<float> gradient(kCount, 1.0f);
      report.times[0] = now_ns();
      for (size_t i = 0; i < 3; ++i) {
        const meron_source source = {session.params[i], gradient.data(), kCount, MERON_F32, 0};
        meron_future done = {0};
        MUST(meron_reduce_begin, &done, session.units[i], &source, 1, nullptr);
      }
    });
  });
  expect_rank_1_missed(job);
}

// Reduces this rank's gradient of its unit `index`, of 1000 elements.
void begin_reduction(Session& session, size_t index) {
  const std::vector<float> gradient(1000, 1.0f);
  const meron_source source = {session.params[index], gradient.data(), gradient.size(), MERON_F32,
                               0};
  meron_future done{};
  MUST(meron_reduce_begin, &done, session.units[index], &source, 1, nullptr);
}

// Buckets are the rank's, not a group's: who waits for one that a reduction of another group keeps
// hears of that group's end, and its own group works on.
TEST(Buckets, ABucketThatAnotherGroupKeepsFailsWithThatGroup) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies ? "killed" : "closed");
    const Open open = open_shm(3);  // zero3: two buckets
    Job job(3, [&](int rank, Report& report) {
      Session session(open, rank);
      meron_group broken{}, whole{};
      const int32_t of_broken[] = {0, 1}, of_whole[] = {0, 2};
      MUST(meron_group_create, &broken, session.context, of_broken, 2);
      MUST(meron_group_create, &whole, session.context, of_whole, 2);
      for (const char* name : {"a", "b", "c"}) {
        const meron_group group = *name == 'c' ? whole : broken;
        if (group.id == 0) continue;
        const std::string param = std::string(name) + ".weight";
        session.make_unit(name, {session.register_param(param, {1000}, MERON_F32, group)});
      }
      session.barrier();
      if (rank == 1) {
        if (dies) raise(SIGKILL);
        session.close();
        return;
      }
      if (rank == 0) {
        begin_reduction(session, 0);
        begin_reduction(session, 1);
        report.times[0] = now_ns();
        try {
          begin_reduction(session, 2);
        } catch (const CallFailed& failed) {
          record(report, failed);
        }
        try {  // now at once
          begin_reduction(session, 2);
        } catch (const CallFailed& failed) {
          report.numbers[0] = failed.status;
        }
      }
      session.barrier(whole);
      report.mark = 1;
      session.close();
    });
    ASSERT_TRUE(job.wait(30 * kSecond));
    EXPECT_EQ(dies ? MERON_E_PEER_DEAD : MERON_E_PEER_CLOSED, job[0].status) << job[0].message;
    EXPECT_EQ(job[0].status, job[0].numbers[0]);
    EXPECT_EQ(1, job[0].peer);
    EXPECT_LT(job[0].failed_ns - job[0].times[0], kSecond);
    EXPECT_EQ(1, job[0].mark.load());
    EXPECT_EQ(1, job[2].mark.load()) << job[2].message;
  }
}

// A cancelled wait for a bucket must not take one later, because no call would ever release it.
TEST(Buckets, ACancelledWaitForABucketTakesNone) {
  Open open = open_shm(2);  // zero3: two buckets
  Shared<std::atomic<int>> stopping(1), stopped(1);
  open.adjust = [&](int, meron_context_options& options) {
    options.should_stop = [](void* user) -> int32_t {
      return static_cast<std::atomic<int>*>(user)->load();
    };
    options.should_stop_user = stopping.data();
  };
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      session.make_unit(name, {session.register_param(std::string(name) + ".weight", {1000})});
    }
    session.barrier();
    while (rank == 1 && stopped[0].load() == 0) sleep_ns(kMilli);
    begin_reduction(session, 0);
    begin_reduction(session, 1);
    if (rank == 0) {
      stopping[0] = 1;
      meron_view view{};
      report.numbers[0] =
          FAILURE_OF(meron_gradient_view, &view, session.params[2], uint64_t{0}).status;
      stopping[0] = 0;
      stopped[0] = 1;
    }
    MUST(meron_reduce_wait, session.units.data(), 2, MERON_TIMEOUT_DEFAULT);
    meron_view views[2] = {};
    MUST(meron_gradient_view, &views[0], session.params[3], uint64_t{0});
    MUST(meron_gradient_view, &views[1], session.params[4], uint64_t{0});
    session.close();
  });
  expect_well(job);
  EXPECT_EQ(MERON_E_CANCELLED, job[0].numbers[0]);
}

// The same where the reduction has ended here, and a peer that has closed will never have read it.
// That peer has no number in the waiter's own group.
TEST(Buckets, ABucketThatAnotherGroupStillReadsFailsWithThatGroup) {
  const Open open = open_shm(4);
  Shared<std::atomic<int>> gone(1), told(1);
  Job job(4, [&](int rank, Report& report) {
    Session session(open, rank);
    meron_group pair{};
    const int32_t members[] = {0, 1};
    MUST(meron_group_create, &pair, session.context, members, 2);
    for (const char* name : {"a", "b", "c"}) {
      const meron_group group = *name == 'c' ? pair : session.world;
      if (group.id == 0) continue;
      const std::string param = std::string(name) + ".weight";
      session.make_unit(name, {session.register_param(param, {1000}, MERON_F32, group)});
    }
    session.barrier();
    while (rank != 3 && gone[0].load() == 0) sleep_ns(kMilli);
    begin_reduction(session, 0);
    begin_reduction(session, 1);
    if (rank == 3) {
      session.close();
      gone[0] = 1;
      return;
    }
    MUST(meron_reduce_wait, session.units.data(), 2, MERON_TIMEOUT_DEFAULT);
    report.times[0] = now_ns();
    if (rank != 2) {
      try {
        begin_reduction(session, 2);
      } catch (const CallFailed& failed) {
        record(report, failed);
      }
      ++told[0];
    }
    while (told[0].load() < 2) sleep_ns(kMilli);
    session.close();
  });
  ASSERT_TRUE(job.wait(30 * kSecond));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(MERON_E_PEER_CLOSED, job[rank].status) << job[rank].message;
    EXPECT_EQ(3, job[rank].peer);
    EXPECT_STREQ("wait for the gradient bucket of unit 'c'", job[rank].operation);
    EXPECT_LT(job[rank].failed_ns - job[rank].times[0], kSecond);
  }
}

}  // namespace
}  // namespace meron::test
