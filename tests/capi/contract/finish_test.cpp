// SPDX-License-Identifier: Apache-2.0
// meron_future_finish waits and releases in one; meron_future_wait_any says which of several
// futures has ended.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tests/capi/contract/two_ranks.h"

namespace meron::test {
namespace {

constexpr size_t kNone = 999;

Open alone() {
  Open open;
  open.transport = "self";
  open.ranks = 1;
  return open;
}

meron_future barrier_of(const Session& session) {
  meron_future barrier{};
  MUST(meron_barrier_begin, &barrier, session.world);
  return barrier;
}

// A step whose gradient has a NaN.
meron_future failing_step(Session& session) {
  session.reduce(0, std::numeric_limits<float>::quiet_NaN());
  meron_future step{};
  MUST(meron_optimizer_step_begin, &step, session.optimizer);
  return step;
}

// ---- meron_future_finish
// -------------------------------------------------------------------------

TEST(Finish, WaitsAndReleases) {
  Session session(alone(), 0);
  const meron_future barrier = barrier_of(session);
  EXPECT_EQ(MERON_OK, meron_future_finish(barrier, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(MERON_E_STALE, meron_future_release(barrier, nullptr));
  EXPECT_EQ(MERON_E_STALE, meron_future_finish(barrier, MERON_TIMEOUT_DEFAULT, nullptr));
  session.close();
}

TEST(Finish, ReleasesAFailedOperationAndTellsItsError) {
  Open open = alone();
  std::atomic<int> errors{0};
  open.adjust = [&](int, meron_context_options& options) {
    options.log_user = &errors;
    options.log = [](void* user, meron_log_level level, const char*, size_t) {
      if (level == MERON_LOG_ERROR) ++*static_cast<std::atomic<int>*>(user);
    };
  };
  Session session(open, 0);
  session.build(1);
  const meron_future step = failing_step(session);
  const CallFailed failed = FAILURE_OF(meron_future_finish, step, MERON_TIMEOUT_DEFAULT);
  EXPECT_EQ(MERON_E_NONFINITE, failed.status);
  EXPECT_NE(std::string::npos, failed.message.find("u0.")) << failed.message;
  EXPECT_EQ(MERON_E_STALE, meron_future_poll(step, nullptr));
  session.barrier();
  session.close();
  EXPECT_EQ(0, errors) << "the error was seen, and is logged as unseen";
}

TEST(Finish, GivesTheLeasesOfAGatherBack) {
  Session session(alone(), 0);
  session.build(1);
  std::vector<float> weight(37 * 13, -1.0f);
  const meron_destination into = {session.params[0], weight.data(), weight.size() * sizeof(float)};
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = MERON_GATHER_INTO;
  options.destinations = &into;
  options.destination_count = 1;
  session.update(0, 2.0f);
  meron_future gather{};
  MUST(meron_gather_begin, &gather, session.units.data(), 1, &options);
  EXPECT_EQ(MERON_OK, meron_future_finish(gather, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(2.0f, weight.front());
  EXPECT_EQ(2.0f, weight.back());
  session.update(0, 3.0f);  // waits for leases
  session.close();
}

TEST(Finish, LeavesAnUpdateToPublish) {
  Session session(alone(), 0);
  session.build(1);
  meron_future update{};
  MUST(meron_update_begin, &update, session.units.data(), 1);
  const CallFailed failed = FAILURE_OF(meron_future_finish, update, MERON_TIMEOUT_DEFAULT);
  EXPECT_EQ(MERON_E_HANDLE, failed.status);
  EXPECT_NE(std::string::npos, failed.message.find("publish it")) << failed.message;
  MUST(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
  MUST(meron_update_publish, update);
  session.close();
}

TEST(Finish, OfATransferOfFiles) {
  meron_io io{};
  MUST(meron_io_open, &io, nullptr);
  meron_future request{};
  std::string path = "/tmp/meron-finish-";
  path += std::to_string(getpid());
  MUST(meron_io_write_begin, &request, io, path.c_str(), "four", 4, 0);
  EXPECT_EQ(MERON_OK, meron_future_finish(request, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(MERON_E_STALE, meron_future_release(request, nullptr));
  MUST(meron_io_close, io);
  unlink(path.c_str());
}

TEST_F(TwoRanks, FinishKeepsAFutureWhoseTimeoutPassed) {
  Session& session = start([this](Session& other) {
    await_go();
    other.barrier();
  });
  const meron_future barrier = barrier_of(session);
  EXPECT_EQ(MERON_IN_PROGRESS, meron_future_finish(barrier, 10 * kMilli, nullptr));
  EXPECT_EQ(MERON_IN_PROGRESS, meron_future_poll(barrier, nullptr));
  EXPECT_EQ(MERON_E_ARGUMENT, meron_future_finish(barrier, -2, nullptr));
  go = true;
  EXPECT_EQ(MERON_OK, meron_future_finish(barrier, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(MERON_E_STALE, meron_future_poll(barrier, nullptr));
  done = true;
  session.close();
}

TEST_F(TwoRanks, FinishReleasesAlsoWhenShouldStopEndsTheWait) {
  open.adjust = [](int rank, meron_context_options& options) {
    if (rank == 0) options.should_stop = [](void*) -> int32_t { return 1; };
  };
  go = true;  // an open that waits would be stopped
  std::atomic<bool> opened{false};
  std::thread other([&] {
    Session peer(open, 1);
    opened = true;
    while (!done) sleep_ns(kMilli);
    (void)meron_context_close(peer.context, nullptr);
  });
  sleep_ns(50 * kMilli);
  std::unique_ptr<Session> session;
  while (!session) {
    try {
      session = std::make_unique<Session>(open, 0);
    } catch (const CallFailed& failed) {
      ASSERT_EQ(MERON_E_CANCELLED, failed.status) << failed.message;
    }
  }
  const meron_future barrier = barrier_of(*session);
  EXPECT_EQ(MERON_E_CANCELLED, meron_future_finish(barrier, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(MERON_E_STALE, meron_future_poll(barrier, nullptr));
  done = true;
  other.join();
  (void)meron_context_close(session->context, nullptr);
}

// ---- meron_future_wait_any
// -----------------------------------------------------------------------

TEST(WaitAny, NamesTheFirstThatHasEnded) {
  Session session(alone(), 0);
  const meron_future barriers[] = {{0}, barrier_of(session), barrier_of(session), {0}};
  size_t which = kNone;
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, barriers, 4, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(1u, which);
  MUST(meron_future_finish, barriers[1], MERON_TIMEOUT_DEFAULT);
  EXPECT_EQ(MERON_E_STALE, meron_future_wait_any(&which, barriers, 4, 0, nullptr));
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, barriers + 2, 2, 0, nullptr));
  EXPECT_EQ(0u, which);
  MUST(meron_future_finish, barriers[2], MERON_TIMEOUT_DEFAULT);
  session.close();
}

TEST(WaitAny, RefusesArraysWithoutAFuture) {
  Session session(alone(), 0);
  const meron_future none[2] = {};
  size_t which = kNone;
  EXPECT_EQ(MERON_E_HANDLE, meron_future_wait_any(&which, none, 2, 0, nullptr));
  EXPECT_EQ(MERON_E_HANDLE, meron_future_wait_any(&which, none, 0, 0, nullptr));
  EXPECT_EQ(kNone, which) << "a failure wrote *out";
  session.close();
}

TEST(WaitAny, CountsAFailedOperationAndLeavesItsError) {
  Session session(alone(), 0);
  session.build(1);
  const meron_future step = failing_step(session);
  size_t which = kNone;
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, &step, 1, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(0u, which);
  EXPECT_EQ(MERON_E_NONFINITE, meron_future_finish(step, 0, nullptr));
  session.close();
}

TEST(WaitAny, OfAGatherWaitsForTheDevice) {
  Open open = alone();
  open.adjust = [](int, meron_context_options& options) { options.device = "emulated"; };
  Session session(open, 0);
  session.build(1);
  session.update(0, 2.0f);
  meron_future gather{};
  MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
  size_t which = kNone;
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, &gather, 1, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(0u, which);
  EXPECT_EQ(MERON_OK, meron_future_wait(gather, 0, nullptr)) << "its copies are under way";
  meron_view view{};
  MUST(meron_gather_view, &view, gather, session.params[0]);
  EXPECT_EQ(2.0f, static_cast<const float*>(view.data)[0]);
  MUST(meron_future_release, gather);
  session.close();
}

TEST_F(TwoRanks, WaitAnyNamesTheOneThatThePeersHaveJoined) {
  Session& session = start([this](Session& other) {
    meron_group pair{};
    const int32_t both[] = {0, 1};
    MUST(meron_group_create, &pair, other.context, both, 2);
    await_go();
    other.barrier();  // of the world; of the pair much later
    while (!done) sleep_ns(kMilli);
    other.barrier(pair);
  });
  meron_group pair{};
  const int32_t both[] = {0, 1};
  MUST(meron_group_create, &pair, session.context, both, 2);
  meron_future futures[2];
  MUST(meron_barrier_begin, &futures[0], pair);
  MUST(meron_barrier_begin, &futures[1], session.world);
  size_t which = kNone;
  EXPECT_EQ(MERON_IN_PROGRESS, meron_future_wait_any(&which, futures, 2, 10 * kMilli, nullptr));
  EXPECT_EQ(2u, which);
  std::thread later([this] {
    sleep_ns(50 * kMilli);
    go = true;
  });
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, futures, 2, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(1u, which);
  later.join();
  MUST(meron_future_finish, futures[1], MERON_TIMEOUT_DEFAULT);
  futures[1].id = 0;
  EXPECT_EQ(MERON_IN_PROGRESS, meron_future_wait_any(&which, futures, 2, 0, nullptr));
  done = true;
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, futures, 2, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(0u, which);
  MUST(meron_future_finish, futures[0], MERON_TIMEOUT_DEFAULT);
  session.close();
}

TEST_F(TwoRanks, WaitAnyEndsAtTheDeadlineOfItsOperations) {
  open.timeout_ns = 300 * kMilli;
  Session& session = start([](Session&) {});
  const meron_future barriers[] = {barrier_of(session), barrier_of(session)};
  const int64_t begun = now_ns();
  size_t which = kNone;
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, barriers, 2, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_LT(now_ns() - begun, 10 * kSecond);
  ASSERT_LT(which, 2u);
  const CallFailed failed = FAILURE_OF(meron_future_finish, barriers[which], 0);
  EXPECT_EQ(MERON_E_TIMEOUT, failed.status) << failed.message;
  EXPECT_EQ(1, failed.peer) << failed.message;
  done = true;
  (void)meron_context_close(session.context, nullptr);
}

TEST_F(TwoRanks, WaitAnyEndsWhenAPeerAborts) {
  Session& session = start([this](Session& other) {
    await_go();
    MUST(meron_group_abort, other.world, "enough");
  });
  const meron_future barrier = barrier_of(session);
  go = true;
  size_t which = kNone;
  EXPECT_EQ(MERON_OK, meron_future_wait_any(&which, &barrier, 1, MERON_TIMEOUT_DEFAULT, nullptr));
  EXPECT_EQ(MERON_E_ABORTED, meron_future_finish(barrier, 0, nullptr));
  done = true;
  (void)meron_context_close(session.context, nullptr);
}

TEST_F(TwoRanks, WaitAnyEndsWhenItsContextIsClosed) {
  Session& session = start([](Session&) {});
  const meron_future barrier = barrier_of(session);
  meron_status waited = MERON_OK;
  std::thread waiter([&] {
    size_t which = kNone;
    waited = meron_future_wait_any(&which, &barrier, 1, MERON_TIMEOUT_DEFAULT, nullptr);
    // The close may also end the operation first, whose error then says it.
    if (waited == MERON_OK) waited = meron_future_poll(barrier, nullptr);
  });
  sleep_ns(50 * kMilli);
  (void)meron_context_close(session.context, nullptr);
  waiter.join();
  EXPECT_TRUE(waited == MERON_E_CLOSED || waited == MERON_E_STALE) << meron_status_name(waited);
  done = true;
}

}  // namespace
}  // namespace meron::test
