// SPDX-License-Identifier: Apache-2.0
// Each function that begins a collective waits if this rank is 1,024 calls ahead of a peer.
// should_stop and the deadline bound the wait.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/fault/rank.h"

namespace meron::test {
namespace {

constexpr int kCalls = 1024;

// Begins barriers until one waits, and should_stop ends that wait.
int fill(Session& session) {
  for (int begun = 0; begun < 2 * kCalls; ++begun) {
    meron_future barrier{};
    const CallFailed failed = FAILURE_OF(meron_barrier_begin, &barrier, session.world);
    if (failed.status == MERON_OK) {
      MUST(meron_future_release, barrier);
      continue;
    }
    EXPECT_EQ(MERON_E_CANCELLED, failed.status) << failed.message;
    return begun;
  }
  return -1;
}

// Calls each begin in a session that is a ring ahead, and returns the failures.
std::vector<CallFailed> begin_everything(Session& session, meron_param loose) {
  meron_future future{};
  meron_param param{};
  meron_unit unit{};
  meron_group group{};
  meron_optimizer optimizer{};
  meron_schedule schedule{};
  static float data[4];
  static const int32_t ranks[] = {0, 1};
  const int64_t shape[] = {4};
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "new";
  desc.shape = shape;
  desc.dims = 1;
  meron_reduce_options whole = MERON_REDUCE_OPTIONS_INIT;
  return {
      FAILURE_OF(meron_barrier_begin, &future, session.world),
      FAILURE_OF(meron_broadcast_begin, &future, session.world, data, sizeof(data), 0),
      FAILURE_OF(meron_all_reduce_begin, &future, session.world, data, 4, MERON_F32,
                 MERON_REDUCE_OP_SUM),
      FAILURE_OF(meron_gather_begin, &future, session.units.data(), 1, nullptr),
      FAILURE_OF(meron_update_begin, &future, session.units.data(), 1),
      FAILURE_OF(meron_reduce_begin, &future, session.units[0], nullptr, 0, &whole),
      FAILURE_OF(meron_optimizer_step_begin, &future, session.optimizer),
      FAILURE_OF(meron_optimizer_create, &optimizer, session.units.data(), 1, nullptr),
      FAILURE_OF(meron_schedule_create, &schedule, session.units.data(), 1, nullptr),
      FAILURE_OF(meron_param_register, &param, session.context, &desc),
      FAILURE_OF(meron_unit_create, &unit, session.context, "new", &loose, 1),
      FAILURE_OF(meron_group_create, &group, session.context, ranks, 2),
      FAILURE_OF(meron_unit_destroy, session.units[1]),
  };
}

TEST(Ahead, EveryBeginWaitsAndNothingIsBegun) {
  std::atomic<int32_t> stop{0};
  std::atomic<bool> go{false};
  std::atomic<int> begun{0};
  Open open;
  open.transport = "local";
  open.token = fresh_token();
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank != 0) return;
    options.should_stop_user = &stop;
    options.should_stop = [](void* user) -> int32_t {
      return static_cast<std::atomic<int32_t>*>(user)->load();
    };
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        Session session(open, rank);
        session.build();
        const meron_param loose = session.register_param("loose", {4});
        session.barrier();
        if (rank == 0) {
          stop = 1;
          begun = fill(session);
          for (const CallFailed& failed : begin_everything(session, loose)) {
            EXPECT_EQ(MERON_E_CANCELLED, failed.status) << failed.function << failed.message;
          }
          stop = 0;
          go = true;
        } else {
          while (!go) sleep_ns(kMilli);
          for (int i = 0; i < begun; ++i) session.barrier();
        }
        session.barrier();
        session.close();
      } catch (const CallFailed& failed) {
        go = true;
        ADD_FAILURE() << "rank " << rank << ": " << failed.message;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_NEAR(kCalls, begun.load(), 8);
}

// The peer never follows: the deadline ends the wait of the begin, and breaks the group.
TEST(Ahead, TheDeadlineEndsTheWaitOfABegin) {
  constexpr int64_t kDeadline = kSecond;
  std::atomic<bool> done{false};
  Open open;
  open.transport = "local";
  open.token = fresh_token();
  open.timeout_ns = kDeadline;
  std::thread peer([&] {
    const Session silent(open, 1);
    while (!done) sleep_ns(kMilli);
    (void)meron_context_close(silent.context, nullptr);
  });
  {
    Session session(open, 0);
    CallFailed failed;
    int64_t before = 0;
    for (int i = 0; i < 2 * kCalls && failed.status == MERON_OK; ++i) {
      before = now_ns();
      meron_future barrier{};
      failed = FAILURE_OF(meron_barrier_begin, &barrier, session.world);
      (void)meron_future_release(barrier, nullptr);
    }
    EXPECT_EQ(MERON_E_TIMEOUT, failed.status) << failed.message;
    EXPECT_EQ(1, failed.peer) << failed.message;
    EXPECT_GE(failed.when_ns - before, kDeadline / 2);
    EXPECT_LT(failed.when_ns - before, 10 * kDeadline);
    (void)meron_context_close(session.context, nullptr);
  }
  done = true;
  peer.join();
}

}  // namespace
}  // namespace meron::test
