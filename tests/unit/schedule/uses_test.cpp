// SPDX-License-Identifier: Apache-2.0
// Uses: how they are counted, what fails, and that a call that fails leaves no trace.
#include "fake.h"

namespace meron::test {
namespace {

meron_status code_of(const Status& status) {
  return status.ok() ? MERON_OK : status.error().code();
}

TEST(UsesTest, AUnitIsHeldUntilItWasLeftAsOftenAsEntered) {
  Trainer trainer({10});
  ASSERT_TRUE(trainer.schedule.start_pass(0).ok());
  trainer.enter(0);
  trainer.enter(0);
  trainer.leave(0);
  EXPECT_TRUE(trainer.gatherer.held(0));
  EXPECT_TRUE(trainer.schedule.entered(0));
  trainer.leave(0);
  EXPECT_FALSE(trainer.gatherer.held(0));
  EXPECT_EQ(2u, trainer.counts().uses);
  EXPECT_EQ(1u, trainer.counts().ready);
  EXPECT_EQ(0u, trainer.counts().live_elements);
  EXPECT_EQ(10u, trainer.counts().peak_live_elements);
}

TEST(UsesTest, LeavingWhatIsNotEnteredIsAnErrorThatNamesIt) {
  Trainer trainer({1, 1});
  const Status left = trainer.schedule.leave(1);
  ASSERT_EQ(MERON_E_STATE, code_of(left));
  EXPECT_NE(std::string::npos, left.error().info().what.find("'b'"));
}

TEST(UsesTest, BeginAndDropNameWhatIsEntered) {
  Trainer trainer({1, 1, 1, 1, 1, 1});
  for (const size_t unit : {1, 2, 3, 4, 5}) trainer.enter(unit);
  const Status begun = trainer.schedule.start_pass(0), dropped = trainer.schedule.drop();
  for (const Status& status : {begun, dropped}) {
    ASSERT_EQ(MERON_E_STATE, code_of(status));
    EXPECT_EQ("'b', 'c', 'd', 'e' and 1 more are still entered", status.error().info().what);
  }
}

TEST(UsesTest, SmallUnitsStayUntilTheyAreDropped) {
  ScheduleOptions options = plain();
  options.persist_elements = 10;
  options.persist_total_elements = 15;
  Trainer trainer({10, 11, 6, 5}, options);  // c no longer fits the total, d does
  EXPECT_EQ("+a+b-b+c-c+d", trainer.pass("abcd"));
  EXPECT_EQ("+b-b+c-c", trainer.pass("abcd"));
  trainer.gatherer.log.clear();
  ASSERT_TRUE(trainer.schedule.drop().ok());
  EXPECT_EQ("-a-d", trainer.gatherer.log);
  EXPECT_EQ("+a+b-b", trainer.use("ab"));
}

TEST(UsesTest, ResetForgetsUsesAndPassButNotTheOrder) {
  ScheduleOptions options = plain();
  options.prefetch_elements = 2;
  Trainer trainer({1, 1, 1}, options);
  trainer.pass("abc");
  ASSERT_TRUE(trainer.schedule.start_pass(0).ok());
  trainer.enter(0);
  trainer.gatherer.log.clear();
  ASSERT_TRUE(trainer.schedule.reset().ok());
  EXPECT_EQ("-a-b-c", trainer.gatherer.log);
  EXPECT_EQ(0u, trainer.counts().entered);
  EXPECT_EQ("+b-b+a-a", trainer.use("ba")) << "outside of a pass nothing is begun ahead";
  EXPECT_EQ("+a+b+c-a-b-c", trainer.pass("abc")) << "the order is that of the last whole pass";
}

TEST(UsesTest, AGatherThatCannotBeginLeavesNoTrace) {
  Trainer trainer({1, 1});
  ASSERT_TRUE(trainer.schedule.start_pass(0).ok());
  trainer.gatherer.refused = 1;
  EXPECT_FALSE(trainer.schedule.enter(1).ok());
  EXPECT_FALSE(trainer.schedule.entered(1));
  EXPECT_EQ(0u, trainer.counts().uses);
  EXPECT_EQ(0u, trainer.counts().live_elements);
}

// A retry must not record a second use, or ranks whose waits timed out would learn other orders.
TEST(UsesTest, AUseThatWasNotEnteredGoesOnWhenItIsTriedAgain) {
  ScheduleOptions options = plain();
  options.prefetch_elements = 1;
  Trainer trainer({1, 1}, options, 5);
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_TRUE(trainer.schedule.start_pass(0).ok());
    for (int attempt = 0; attempt < 3; ++attempt) {
      auto full = trainer.schedule.enter(0);
      ASSERT_TRUE(full.ok());
      ASSERT_FALSE(*full);
      trainer.schedule.waited(0, false, 0);
      EXPECT_FALSE(trainer.schedule.entered(0));
      EXPECT_EQ(MERON_E_STATE, code_of(trainer.schedule.leave(0)));
    }
    trainer.use("ab");
  }
  EXPECT_EQ(4u, trainer.counts().uses);
  EXPECT_EQ(0u, trainer.counts().deviations);
}

// It has prefetched the same units as ranks without a timeout. Space that became free since then
// must not be used before those ranks use it, in their next enter.
TEST(UsesTest, AUseThatIsTriedAgainBeginsNothingMoreAhead) {
  ScheduleOptions options = plain();
  options.prefetch_elements = 10;
  options.max_live_elements = 2;
  const auto gathers = [&](bool times_out) {
    Trainer trainer({1, 1, 1, 1}, options, 5);
    trainer.pass("ba");
    trainer.pass("bac");
    EXPECT_TRUE(trainer.schedule.start_pass(0).ok());
    trainer.gatherer.log.clear();
    trainer.enter(1);
    if (times_out) {
      EXPECT_FALSE(*trainer.schedule.enter(0));
      trainer.schedule.waited(0, false, 0);
      trainer.leave(1);
      trainer.enter(0);
    } else {
      trainer.enter(0);
      trainer.leave(1);
    }
    trainer.enter(3);  // out of turn, and takes the room
    trainer.leave(3);
    return trainer.gatherer.log;
  };
  EXPECT_EQ(gathers(false), gathers(true));
}

// Another thread's mistake: the unit is not entered yet.
TEST(UsesTest, AUnitThatIsStillWaitedForCannotBeLeft) {
  Trainer trainer({1}, plain(), 5);
  const auto entered = trainer.schedule.enter(0);
  ASSERT_TRUE(entered.ok() && !*entered);
  EXPECT_EQ(MERON_E_STATE, code_of(trainer.schedule.leave(0)));
  trainer.gatherer.now = trainer.gatherer.ready_at(0);
  trainer.schedule.waited(0, true, 0);
  EXPECT_EQ(1u, trainer.counts().entered);
  trainer.leave(0);
}

TEST(UsesTest, AGatherAheadThatFailsIsToldAtItsUse) {
  ScheduleOptions options = plain();
  options.prefetch_elements = 10;
  Trainer trainer({1, 1}, options, 1);
  trainer.pass("ab");
  ASSERT_TRUE(trainer.schedule.start_pass(0).ok());
  trainer.gatherer.failed = 1;
  trainer.use("a");
  const auto entered = trainer.schedule.enter(1);
  ASSERT_FALSE(entered.ok());
  EXPECT_EQ(MERON_E_PEER_DEAD, entered.error().code());
  EXPECT_FALSE(trainer.schedule.entered(1));
}

TEST(UsesTest, AGatherAheadThatCannotBeginEndsTheEnter) {
  ScheduleOptions options = plain();
  options.prefetch_elements = 10;
  Trainer trainer({1, 1}, options);
  trainer.pass("ab");
  ASSERT_TRUE(trainer.schedule.start_pass(0).ok());
  trainer.gatherer.refused = 1;
  EXPECT_FALSE(trainer.schedule.enter(0).ok());
  EXPECT_FALSE(trainer.schedule.entered(0));
  trainer.gatherer.refused = SIZE_MAX;
  trainer.use("ab");
  EXPECT_EQ(4u, trainer.counts().uses);
  EXPECT_EQ(0u, trainer.counts().deviations);
}

}  // namespace
}  // namespace meron::test
