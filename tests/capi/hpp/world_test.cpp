// SPDX-License-Identifier: Apache-2.0
// The C++ layer on several ranks, which are threads: collectives, and callbacks that throw.
#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "tests/capi/hpp/world.h"

namespace meron::test {
namespace {

using testing::HasSubstr;

TEST(World, TrainsOnThreeRanks) {
  std::vector<float> values[3];
  run_ranks(3, [&](Context& context) {
    const Param weight = context.param("weight", {1000});
    const Param bias = context.param("bias", {7});
    const Unit unit = context.unit("unit", {weight, bias});
    std::vector<float> start(1000);
    for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<float>(i);
    Update writing = update(unit);
    writing.write(weight, start);
    writing.publish();
    const Optimizer optimizer = adamw(unit, {0.25, 0.9, 0.999, 1e-8, 0.0});
    for (float& x : gradient(weight, GradientStart::overwrite).as<float>()) {
      x = static_cast<float>(context.rank());
    }
    Future done = reduce_begin(unit);
    while (!done.wait_for(std::chrono::milliseconds(5))) {
    }
    optimizer.step();
    Gather full = gather_begin({unit});
    full.wait();
    const auto view = full.view(weight).as<const float>();
    values[context.rank()].assign(view.begin(), view.end());
    std::array<float, 2> sum = {1, static_cast<float>(context.rank())};
    context.world().all_reduce(sum, ReduceOp::sum);
    EXPECT_EQ(3, sum[0] + sum[1] - 3);
    const Group pair = context.group({2, 0});
    EXPECT_EQ(context.rank() != 1, static_cast<bool>(pair));
    if (pair) {
      EXPECT_EQ(context.rank() == 2 ? 0 : 1, pair.rank());
      int root = context.rank();
      pair.broadcast(root, 0);
      EXPECT_EQ(2, root);
    }
    context.world().barrier();
  });
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(values[0], values[2]);
  EXPECT_NEAR(9.75F, values[0][10], 1e-5);
}

TEST(World, ClipsGradientsAndNamesTheParamsOfAUnit) {
  run_ranks(2, [&](Context& context) {
    const Param weight = context.param("weight", {12});
    const Param bias = context.param("bias", {4});
    const Unit unit = context.unit("unit", {weight, bias});
    EXPECT_EQ("unit", unit.name());
    const std::vector<Param> params = unit.params();
    ASSERT_EQ(2U, params.size());
    EXPECT_EQ("bias", params[1].name());
    EXPECT_EQ(12U, params[0].size());
    for (const Param* param : {&weight, &bias}) {
      for (float& x : gradient(*param, GradientStart::overwrite).as<float>()) x = 1;
    }
    reduce_begin(unit).wait();
    EXPECT_EQ(4.0, clip_gradients(unit, 2));
    // Only one of the ranks has a shard of it.
    for (const float x : reduced(bias).as<const float>()) EXPECT_NEAR(0.5F, x, 1e-6);
    EXPECT_NEAR(2.0, clip_gradients(unit, 0), 1e-6);
    discard(unit);
    const String plan = context.plan_json();
    EXPECT_THAT(std::string(plan.c_str()), HasSubstr("gradient"));
  });
}

TEST(World, ReducesNumbersThatNoTensorHas) {
  run_ranks(3, [&](Context& context) {
    std::array<double, 2> wide = {0.1 * context.rank(), -0.1 * context.rank()};
    context.world().all_reduce(wide, ReduceOp::max);
    EXPECT_EQ(0.2, wide[0]);
    EXPECT_EQ(0.0, wide[1]);
    std::array<int64_t, 1> count = {(int64_t{1} << 40) + context.rank()};
    context.world().all_reduce(count);
    EXPECT_EQ(3 * (int64_t{1} << 40) + 3, count[0]);
    context.world().all_reduce(count, ReduceOp::min);
    EXPECT_EQ(3 * (int64_t{1} << 40) + 3, count[0]);
  });
}

// The destructor of an update that an exception ends publishes no half of its values.
TEST(World, AnExceptionAfterAWriteBreaksTheGroup) {
  run_ranks(2, [&](Context& context) {
    const Param param = context.param("w", {8});
    const Unit unit = context.unit("u", param);
    if (context.rank() == 1) {
      try {
        Update writing = update(unit);
        writing.write(param, std::vector<float>(8, 3.0F));
        throw std::domain_error("the caller's own");
      } catch (const std::domain_error& own) {
        EXPECT_STREQ("the caller's own", own.what());
      }
    }
    try {
      if (context.rank() == 0) {
        Update writing = update(unit);
        writing.write(param, std::vector<float>(8, 3.0F));
        writing.publish();
      }
      const Gather full = gather(unit);
      ADD_FAILURE() << "a version of half its values";
    } catch (const Error& error) {
      EXPECT_EQ(MERON_E_ABORTED, error.status());
      EXPECT_THAT(error.what(), HasSubstr("rank 1 gave up the update of unit 'u'"));
    }
  });
}

TEST(World, AnAbortIsAnErrorOfTheGroupThatNamesTheRank) {
  std::atomic<bool> opened{false};
  run_ranks(2, [&](Context& context) {
    if (context.rank() == 1) {
      while (!opened) std::this_thread::yield();
      context.world().abort("had enough");
      return;
    }
    opened = true;
    const Error error = expect_error(MERON_E_ABORTED, [&] { context.world().barrier(); });
    EXPECT_TRUE(error.is_of_group());
    EXPECT_EQ(1, error.peer());
    EXPECT_THAT(error.what(), HasSubstr("had enough"));
    expect_error(MERON_E_ABORTED, [&] { context.world().check(); });
  });
}

// ---- Callbacks ----------------------------------------------------------------------------------

struct Stop : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(Callbacks, WhatShouldStopThrowsIsTheCause) {
  std::atomic<int> stopped{0};
  run_ranks(
      2,
      [&](Context& context) {
        const Future barrier = context.world().barrier_begin();
        if (context.rank() == 1) {
          while (stopped.load() == 0) std::this_thread::yield();
          return;
        }
        // Rank 1 arrives here, but not at the next barrier.
        barrier.wait();
        const Future never = context.world().barrier_begin();
        EXPECT_EQ(static_cast<meron_status>(MERON_IN_PROGRESS), never.try_poll());
        const Error error = expect_error(MERON_E_CANCELLED, [&] { never.wait(); });
        stopped = 1;
        try {
          std::rethrow_exception(error.cause());
        } catch (const Stop& stop) {
          EXPECT_STREQ("as asked", stop.what());
        }
        const Error next = expect_error(MERON_E_HANDLE, [] { Gather().wait(); });
        EXPECT_EQ(nullptr, next.cause()) << "the cause of an earlier error";
      },
      [](ContextOptions& options) {
        options.should_stop = []() -> bool { throw Stop("as asked"); };
      });
}

TEST(Callbacks, ShouldStopEndsAWait) {
  run_ranks(
      2,
      [](Context& context) {
        if (context.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          return;
        }
        const Future never = context.world().barrier_begin();
        const Error error = expect_error(MERON_E_CANCELLED, [&] { never.wait(); });
        EXPECT_EQ(nullptr, error.cause());
      },
      [](ContextOptions& options) { options.should_stop = [] { return true; }; });
}

// The library warns of a wait of several seconds, and reports its end.
TEST(Callbacks, LogMessagesArriveAndWhatLogThrowsIsDropped) {
  std::atomic<int> messages{0};
  run_ranks(
      2,
      [&](Context& context) {
        while (context.rank() == 1 && messages == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        context.world().barrier();
      },
      [&](ContextOptions& options) {
        options.log = [&](LogLevel level, std::string_view message) {
          EXPECT_EQ(LogLevel::warning, level);
          EXPECT_FALSE(message.empty());
          ++messages;
          throw Stop("nobody hears this");
        };
      });
  EXPECT_EQ(2, messages.load());
}

TEST(Callbacks, AreKeptAliveByTheContextAndDieWithIt) {
  const auto token = std::make_shared<int>(0);
  Context context = open_self([&](ContextOptions& options) {
    options.log = [token](LogLevel, std::string_view) {};
    options.should_stop = [token] { return false; };
  });
  EXPECT_EQ(3, token.use_count());
  Context moved(std::move(context));
  EXPECT_EQ(3, token.use_count());
  moved.close();
  EXPECT_EQ(3, token.use_count()) << "a thread may still be about to leave a call";
  moved = Context(nullptr);
  EXPECT_EQ(1, token.use_count());
}

}  // namespace
}  // namespace meron::test
