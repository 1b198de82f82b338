// SPDX-License-Identifier: Apache-2.0
// On a fake clock: what a schedule saves. A layer computes for 100 ns; its 10 elements take 10 ns
// each to gather, on one link.
#include "fake.h"

namespace meron::test {
namespace {

constexpr uint64_t kCompute = 100;
constexpr uint64_t kGather = 100;
const std::string kForwardAndBackward = "abcdeffedcba";

uint64_t time_of_pass(Trainer& trainer, const std::string& units) {
  const uint64_t begun = trainer.gatherer.now;
  trainer.pass(units, 0, kCompute);
  return trainer.gatherer.now - begun;
}

Trainer layers(uint64_t prefetch) {
  ScheduleOptions options = plain();
  options.prefetch_elements = prefetch;
  return Trainer(std::vector<uint64_t>(6, 10), options, kGather / 10);
}

TEST(TimeTest, GathersHideBehindComputation) {
  auto trainer = layers(10);
  const size_t uses = kForwardAndBackward.size();
  EXPECT_EQ(uses * (kCompute + kGather), time_of_pass(trainer, kForwardAndBackward));
  // All but the first; the two uses of f in the middle need one gather.
  EXPECT_EQ(uses * kCompute + kGather, time_of_pass(trainer, kForwardAndBackward));
}

TEST(TimeTest, WaitingIsCounted) {
  auto trainer = layers(10);
  time_of_pass(trainer, "abc");
  EXPECT_EQ(3 * kGather, trainer.counts().wait_ns);
  time_of_pass(trainer, "abc");
  EXPECT_EQ(4 * kGather, trainer.counts().wait_ns);
  EXPECT_EQ(2u, trainer.counts().ahead);
  EXPECT_EQ(2u, trainer.counts().ready);
}

TEST(TimeTest, ADeviationCostsOneGatherAndNoPassWithoutPrefetch) {
  auto trainer = layers(10);
  time_of_pass(trainer, "abcdef");
  const uint64_t steady = time_of_pass(trainer, "abcdef");
  // d is skipped: it was on its way when e was asked for, which therefore waits for both.
  const uint64_t deviating = time_of_pass(trainer, "abcef");
  EXPECT_LE(deviating, steady - kCompute + 2 * kGather);
  EXPECT_EQ(steady - kCompute, time_of_pass(trainer, "abcef"));
}

}  // namespace
}  // namespace meron::test
