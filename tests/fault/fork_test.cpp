// SPDX-License-Identifier: Apache-2.0
// Forked children get errors, and harm nothing.
#include "tests/fault/contexts.h"

namespace meron::test {
namespace {

// Statuses of each kind of call in a forked child.
std::vector<meron_status> calls_of_a_child(const Session& session, meron_future gather,
                                           meron_future future) {
  meron_context context{};
  meron_group group{};
  meron_param param{};
  meron_unit unit{};
  meron_future other{};
  meron_future begun{};
  meron_future update{};
  meron_view view{};
  meron_stats stats{};
  stats.struct_size = sizeof(stats);
  char* text = nullptr;
  int32_t number = 0;
  float data[4] = {};
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "child";
  return {
      meron_context_open(&context, nullptr, nullptr),
      meron_context_rank(&number, session.context, nullptr),
      meron_context_stats(&stats, session.context, nullptr),
      meron_context_progress(session.context, nullptr),
      meron_context_flight_record(&text, session.context, nullptr),
      meron_context_world(&group, session.context, nullptr),
      meron_group_create(&group, session.context, &number, 1, nullptr),
      meron_group_size(&number, session.world, nullptr),
      meron_group_status(session.world, nullptr),
      meron_group_abort(session.world, "child", nullptr),
      meron_barrier_begin(&begun, session.world, nullptr),
      meron_broadcast_begin(&begun, session.world, data, 4, 0, nullptr),
      meron_all_reduce_begin(&begun, session.world, data, 4, MERON_F32, MERON_REDUCE_OP_SUM,
                             nullptr),
      meron_param_register(&param, session.context, &desc, nullptr),
      meron_unit_create(&unit, session.context, "child", session.params.data(), 1, nullptr),
      meron_gather_begin(&other, session.units.data(), 1, nullptr, nullptr),
      meron_future_wait(gather, 0, nullptr),
      meron_gather_view(&view, gather, session.params[0], nullptr),
      meron_update_begin(&update, session.units.data(), 1, nullptr),
      meron_gradient_view(&view, session.params[0], 0, nullptr),
      meron_reduce_begin(&begun, session.units[0], nullptr, 0, nullptr, nullptr),
      meron_optimizer_step_begin(&begun, session.optimizer, nullptr),
      meron_future_wait(future, MERON_TIMEOUT_DEFAULT, nullptr),
      meron_future_poll(future, nullptr),
      meron_future_release(future, nullptr),
      meron_future_release(gather, nullptr),
      meron_param_release(session.params[0], nullptr),
      meron_unit_release(session.units[0], nullptr),
      meron_optimizer_release(session.optimizer, nullptr),
      meron_group_release(session.world, nullptr),
      meron_context_close(session.context, nullptr),
  };
}

struct AtExit {
  ~AtExit() { std::fflush(nullptr); }
};

// Children of a training rank get MERON_E_FORKED, whatever they call, and exit as any process does;
// the training does not notice.
TEST(Fork, ChildrenAreRefusedAndHarmNothing) {
  int64_t expected = 0;
  for (const bool forks : {false, true}) {
    const Open open = open_as("shm", 2, "zero2");
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.update(0, 0.5f);
      for (int step = 0; step < 20; ++step) {
        train(session, 1);
        meron_future gather{};
        meron_future future{};
        MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
        MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
        MUST(meron_barrier_begin, &future, session.world);
        if (forks && step % 4 == rank) {
          static AtExit at_exit;
          std::fflush(nullptr);
          const pid_t child = fork();
          if (child == 0) {
            int wrong = 0;
            for (const meron_status status : calls_of_a_child(session, gather, future)) {
              if (status != MERON_E_FORKED) {
                std::fprintf(stderr, "a forked child gets %s\n", meron_status_name(status));
                ++wrong;
              }
            }
            exit(wrong == 0 ? 0 : 1);  // with destructors, as a worker of a data loader does
          }
          int status = 0;
          waitpid(child, &status, 0);
          if (!exited_well(status)) ++report.numbers[0];
          ++report.numbers[1];
        }
        session.wait(future);
        MUST(meron_future_release, gather);
      }
      report.times[0] = bits_of(session.gather(0));
      session.close();
    });
    ASSERT_TRUE(job.wait(60 * kSecond)) << "a rank hangs";
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
      EXPECT_EQ(0, job[rank].numbers[0]) << "a child was not refused, or crashed";
      EXPECT_EQ(forks ? 5 : 0, job[rank].numbers[1]);
      if (!forks) expected = job[rank].times[0];
      EXPECT_EQ(expected, job[rank].times[0]) << "values differ from a run without forks";
    }
  }
}

// The other way round is allowed: a process forks first and both use Meron.
TEST(Fork, BeforeTheFirstCallIsAllowed) {
  const Open open = open_as("self", 1);
  Job job(1, [&](int rank, Report& report) {
    const pid_t child = fork();
    Session session(open, rank);
    session.build();
    train(session, 1);
    session.close();
    if (child == 0) _exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    report.numbers[0] = exited_well(status) ? 1 : 0;
  });
  expect_well(job);
  EXPECT_EQ(1, job[0].numbers[0]);
}

}  // namespace
}  // namespace meron::test
