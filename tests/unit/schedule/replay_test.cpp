// SPDX-License-Identifier: Apache-2.0
// What is begun ahead, what is kept, and how an order survives passes that deviate from it.
#include <random>

#include "fake.h"

namespace meron::test {
namespace {

ScheduleOptions ahead(uint64_t prefetch) {
  ScheduleOptions options = plain();
  options.prefetch_elements = prefetch;
  return options;
}

TEST(ReplayTest, TheFirstPassBeginsNothingAhead) {
  Trainer trainer({1, 1, 1}, ahead(100));
  EXPECT_EQ("+a-a+b-b+c-c", trainer.pass("abc"));
  EXPECT_EQ(0u, trainer.counts().deviations);
}

TEST(ReplayTest, TheNextPassFollowsWithinTheWindow) {
  Trainer trainer({1, 1, 1, 1}, ahead(2));
  trainer.pass("abcd");
  EXPECT_EQ("+a+b+c-a+d-b-c-d", trainer.pass("abcd"));
  EXPECT_EQ(3u, trainer.counts().ahead);
}

// The needed unit begins before prefetched ones, and the next use is prefetched at any size.
TEST(ReplayTest, AUnitLargerThanTheWindowIsBegunAheadAlone) {
  Trainer trainer({50, 50, 50}, ahead(1));
  trainer.pass("abc");
  EXPECT_EQ("+a+b-a+c-b-c", trainer.pass("abc"));
}

TEST(ReplayTest, NoWindowBeginsNothingAhead) {
  Trainer trainer({1, 1}, ahead(0));
  trainer.pass("ab");
  EXPECT_EQ("+a-a+b-b", trainer.pass("ab"));
}

TEST(ReplayTest, WhatIsUsedAgainSoonIsKept) {
  ScheduleOptions options = plain();
  options.max_reuse_elements = 2;
  Trainer trainer({1, 1, 1}, options);
  trainer.pass("abccba");
  // Between the two uses of b lie 2 elements, between those of a 4.
  EXPECT_EQ("+a-a+b+c-c-b+a-a", trainer.pass("abccba"));
}

TEST(ReplayTest, LiveElementsLimitWhatIsAheadAndKeptButNotWhatIsNeeded) {
  ScheduleOptions options = ahead(100);
  options.max_reuse_elements = 100;
  options.max_live_elements = 2;
  Trainer trainer({1, 1, 1}, options);
  trainer.pass("abccba");
  // a and b are kept and leave no room for c, which is gathered when it is needed all the same.
  EXPECT_EQ("+a+b+c-c+c-c-b-a", trainer.pass("abccba"));
  options.max_live_elements = 0;
  Trainer tight({1, 1, 1}, options);
  tight.pass("abc");
  EXPECT_EQ("+a-a+b-b+c-c", tight.pass("abc"));
}

TEST(ReplayTest, KindsHaveOrdersOfTheirOwn) {
  Trainer trainer({1, 1, 1}, ahead(1));
  trainer.pass("abc", 0);
  trainer.pass("cba", 1);
  EXPECT_EQ("+a+b-a+c-b-c", trainer.pass("abc", 0));
  EXPECT_EQ("+c+b-c+a-b-a", trainer.pass("cba", 1));
  EXPECT_EQ(0u, trainer.counts().deviations);
}

TEST(ReplayTest, APassWithoutUsesReplacesNothing) {
  Trainer trainer({1, 1}, ahead(1));
  trainer.pass("ab");
  trainer.pass("");
  EXPECT_EQ("+a+b-a-b", trainer.pass("ab"));
}

TEST(ReplayTest, WhatWasBegunAheadAndNotUsedIsGivenBackWhenTheNextPassBegins) {
  Trainer trainer({1, 1, 1}, ahead(2));
  trainer.pass("abc");
  trainer.pass("a");
  EXPECT_TRUE(trainer.gatherer.held(1));
  EXPECT_EQ("-b-c+a-a", trainer.pass("a"));
}

TEST(ReplayTest, ASkippedUseLosesOnlyWhatWasSkipped) {
  Trainer trainer({1, 1, 1, 1, 1}, ahead(1));
  trainer.pass("abcde");
  EXPECT_EQ("+a+b-a+d-b+e-d-e", trainer.pass("ade"));
  EXPECT_EQ(1u, trainer.counts().deviations);
}

TEST(ReplayTest, AnInsertedUnitLeavesThePositionWhereItWas) {
  Trainer trainer({1, 1, 1, 1}, ahead(1));
  trainer.pass("abc");
  EXPECT_EQ("+a+b-a+d-d+c-b-c", trainer.pass("adbc"));
  EXPECT_EQ(1u, trainer.counts().deviations);
  EXPECT_EQ("+a+d-a+b-d+c-b-c", trainer.pass("adbc")) << "and is learned at once";
  EXPECT_EQ(1u, trainer.counts().deviations);
}

// The next recorded use of a is the last of the pass: going on from there would lose all between.
TEST(ReplayTest, AUseOutOfTurnDoesNotTakeTheRestWithIt) {
  Trainer trainer({1, 1, 1, 1}, ahead(1));
  trainer.pass("abcdcba");
  const uint64_t met = trainer.counts().ahead;
  trainer.pass("abacdcba");
  EXPECT_EQ(2u, trainer.counts().deviations);
  EXPECT_GE(trainer.counts().ahead - met, 4u);
}

// Branches that come and go: whatever a pass does, no unit is gathered twice or left behind, the
// limits hold, and the next equal pass meets everything ahead.
TEST(ReplayTest, RandomPassesKeepTheBooks) {
  std::mt19937 random(11);  // NOLINT: the same in every run
  for (int round = 0; round < 200; ++round) {
    ScheduleOptions options = ahead(random() % 6);
    options.max_reuse_elements = random() % 6;
    options.max_live_elements = 2 + random() % 8;
    options.persist_elements = random() % 2;
    Trainer trainer({3, 1, 2, 1, 2}, options, random() % 3);
    std::string order;
    for (int pass = 0; pass < 12; ++pass) {
      if (pass % 3 == 0) {
        order.clear();
        for (size_t use = 1 + random() % 12; use > 0; --use) {
          order += static_cast<char>('a' + random() % 5);
        }
      }
      std::string deviating = order;
      if (random() % 2 == 0) deviating[random() % deviating.size()] = 'c';
      trainer.pass(deviating, random() % 2, random() % 4);
      uint64_t live = 0;
      const uint64_t elements[] = {3, 1, 2, 1, 2};
      for (size_t unit = 0; unit < 5; ++unit) {
        live += trainer.gatherer.held(unit) ? elements[unit] : 0;
      }
      ASSERT_EQ(live, trainer.counts().live_elements);
      ASSERT_EQ(0u, trainer.counts().entered);
    }
    ASSERT_TRUE(trainer.schedule.drop().ok());
    ASSERT_EQ(0u, trainer.counts().live_elements);
    // The needed unit may exceed the limit, in addition to the units within the limit.
    EXPECT_LE(trainer.counts().peak_live_elements, options.max_live_elements + 3 + 2);
  }
}

// Ranks differ in what has arrived when; the calls are the same. So must the gathers be.
TEST(ReplayTest, DecisionsDoNotDependOnTime) {
  std::mt19937 random(13);  // NOLINT: the same in every run
  for (int round = 0; round < 100; ++round) {
    ScheduleOptions options = ahead(random() % 6);
    options.max_reuse_elements = random() % 6;
    options.max_live_elements = 2 + random() % 8;
    Trainer fast({3, 1, 2, 1, 2}, options, 0), slow({3, 1, 2, 1, 2}, options, 1000);
    for (int pass = 0; pass < 6; ++pass) {
      std::string order;
      for (size_t use = random() % 12; use > 0; --use) {
        order += static_cast<char>('a' + random() % 5);
      }
      const size_t kind = random() % 2;
      ASSERT_EQ(fast.pass(order, kind, 7), slow.pass(order, kind, 3));
    }
  }
}

}  // namespace
}  // namespace meron::test
