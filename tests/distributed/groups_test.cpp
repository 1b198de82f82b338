// SPDX-License-Identifier: Apache-2.0
// Groups of some of the ranks, each with units of its own that the others know nothing of: each
// trains as a world of its own would, to the same bits.
#include <gtest/gtest.h>

#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

constexpr int kSteps = 8;

// Trains on micro-batches of its own `seed`. Out: weights.
void train(meron_context context, meron_group group, int place, int ranks, uint64_t seed,
           float* weights) {
  Trainer trainer(context, MERON_F32, false, group);
  for (int step = 0; step < kSteps; ++step) {
    auto gradients = trainer.zeros();
    const auto index = seed + static_cast<uint64_t>(step * ranks + place);
    (void)trainer.micro_batch(index, gradients);
    trainer.reduce(gradients, MERON_REDUCE_OPTIONS_INIT, false);
    trainer.step();
  }
  trainer.weights(weights);
}

struct Shape {
  const char* transport;
  const char* plan;
  int node;
};

class Groups : public testing::TestWithParam<Shape> {};

TEST_P(Groups, AreWorldsOfTheirOwn) {
  const size_t count = weight_count();
  Shared<float> apart(4 * count), alone(4 * count);
  World world{.transport = GetParam().transport, .ranks = 4, .plan = GetParam().plan};
  world.node = GetParam().node;
  ASSERT_TRUE(run_world(world, [&](int rank, meron_context context) {
    const int32_t members[2][2] = {{0, 1}, {2, 3}};
    meron_group groups[2] = {};
    for (int g = 0; g < 2; ++g) CALL(meron_group_create, &groups[g], context, members[g], 2);
    const int own = rank / 2;
    // The second group is late, so that the first has made and used its units by then.
    if (own == 1) usleep(50'000);
    train(context, groups[own], rank % 2, 2, own == 0 ? 0 : 1000,
          apart.data() + static_cast<size_t>(rank) * count);
  }));
  for (int g = 0; g < 2; ++g) {
    World pair{.transport = "shm", .ranks = 2, .plan = GetParam().plan};
    ASSERT_TRUE(run_world(pair, [&](int rank, meron_context context) {
      train(context, {}, rank, 2, g == 0 ? 0 : 1000,
            alone.data() + static_cast<size_t>(2 * g + rank) * count);
    }));
  }
  EXPECT_EQ(0, std::memcmp(apart.data(), alone.data(), 4 * count * sizeof(float)));
}

// Ranks 0, 1 and 2 are one node, and 0 receives what 3 says to the node, then 1. These have no part
// in the group, and leave first. Rank 3 makes its first call while they wait for it, or after
// their wait has ended.
TEST(GroupsOfNodes, TrainOnAfterRanksOutsideThemHaveLeft) {
  for (const int late : {200'000, 1'300'000}) {
    for (const char* plan : {"zero3", "zero1"}) {
      SCOPED_TRACE(std::string(plan) + " after " + std::to_string(late));
      World world{.transport = "cluster", .ranks = 4, .plan = plan};
      world.node = 3;
      std::vector<float> unused(weight_count());
      EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
        const int32_t members[] = {2, 3};
        meron_group group{};
        CALL(meron_group_create, &group, context, members, 2);
        if (rank == 0) return;
        usleep(rank == 1 ? 50'000 : rank == 2 ? 100'000 : late);
        if (rank == 1) return;
        train(context, group, rank - 2, 2, 0, unused.data());
      }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Groups,
                         testing::Values(Shape{"shm", "zero3", 0}, Shape{"local", "zero3", 0},
                                         Shape{"shm", "zero1", 0}, Shape{"shm", "mics(1)", 0},
                                         Shape{"sockets", "zero3", 0}, Shape{"cluster", "zero3", 2},
                                         Shape{"cluster", "hpz(1)", 1}),
                         [](const auto& info) {
                           std::string name =
                               std::string(info.param.transport) + "_" + info.param.plan;
                           for (char& c : name) {
                             if (c == '(' || c == ')') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace meron::test
