// SPDX-License-Identifier: Apache-2.0
// Calls on an optimizer and its units during a pending step.
#include <cmath>

#include "tests/fault/outcomes.h"

namespace meron::test {
namespace {

// Between the begin and the end of a step the units belong to the step, even those that it has not
// reached yet. A conflicting call fails on this rank, and the step continues.
TEST(Steps, AUnitOfAStepUnderWayIsRefused) {
  for (const char* plan : {"zero0", "zero3"}) {
    const Open open = open_shm(2, plan);
    Shared<std::atomic<int>> asked(1);
    Job job(2, [&](int rank, Report& report) {
      Session session(open, rank);
      session.build();
      session.reduce(0, 1.0f);
      session.reduce(1, 1.0f);
      session.barrier();
      while (rank == 1 && asked[0].load() == 0) sleep_ns(kMilli);
      meron_future step{};
      MUST(meron_optimizer_step_begin, &step, session.optimizer);
      if (rank == 0) {
        meron_future gather{};
        meron_future update{};
        meron_future second{};
        meron_view view{};
        const meron_unit* const units = session.units.data();
        report.numbers[0] = FAILURE_OF(meron_gather_begin, &gather, units, 1, nullptr).status;
        report.numbers[1] = FAILURE_OF(meron_update_begin, &update, units, 2).status;
        report.numbers[2] =
            FAILURE_OF(meron_optimizer_step_begin, &second, session.optimizer).status;
        report.numbers[3] = FAILURE_OF(meron_gradient_view, &view, session.params[0], 0).status;
        report.numbers[4] = FAILURE_OF(meron_reduce_discard, units[1]).status;
        asked[0] = 1;
      }
      session.wait(step);
      session.gather(0);
      session.close();
    });
    expect_well(job);
    for (int call = 0; call < 5; ++call) {
      EXPECT_EQ(MERON_E_STATE, job[0].numbers[call]) << plan << ": call " << call;
    }
  }
}

// One rank's NaN: no rank steps, all say so, and the next step is right.
TEST(Steps, AStepThatIsNotFiniteChangesNothing) {
  const Open open = open_shm(3, "zero2");
  Job job(3, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.update(0, 1.0f);
    const double before = session.gather(0);
    session.reduce(1, rank == 1 ? NAN : 1.0f);
    session.reduce(0, 1.0f);
    meron_future step{};
    MUST(meron_optimizer_step_begin, &step, session.optimizer);
    report.numbers[0] = FAILURE_OF(meron_future_wait, step, MERON_TIMEOUT_DEFAULT).status;
    MUST(meron_future_release, step);
    report.numbers[1] = session.gather(0) == before ? 1 : 0;
    session.reduce(1, 1.0f);
    session.reduce(0, 1.0f);
    session.step();
    report.numbers[2] = session.gather(0) < before ? 1 : 0;
    session.close();
  });
  expect_well(job);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(MERON_E_NONFINITE, job[rank].numbers[0]);
    EXPECT_EQ(1, job[rank].numbers[1]) << "values changed";
    EXPECT_EQ(1, job[rank].numbers[2]) << "no step after it";
  }
}

// An optimizer whose handle goes during a step keeps its states until the step has ended.
TEST(Steps, AnOptimizerReleasedDuringItsStep) {
  const Open open = open_shm(2);
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    session.build();
    session.update(0, 1.0f);
    session.reduce(0, 1.0f);
    session.reduce(1, 1.0f);
    if (rank == 1) sleep_ns(30 * kMilli);
    meron_future step{};
    MUST(meron_optimizer_step_begin, &step, session.optimizer);
    MUST(meron_optimizer_release, session.optimizer);
    session.wait(step);
    report.numbers[0] = session.gather(0) < 37 * 13 ? 1 : 0;  // the step went downhill
    session.make_optimizer();
    session.close();
  });
  expect_well(job);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(1, job[rank].numbers[0]);
}

}  // namespace
}  // namespace meron::test
