// SPDX-License-Identifier: Apache-2.0
// Accumulations that end without another micro-batch, or are given up. (That the sums have the bits
// of a usual boundary is the twin test's.)
#include <atomic>
#include <chrono>
#include <cmath>

#include "reducing.h"

namespace meron::test {
namespace {

TEST(Finish, NothingGivenIsZero) {
  on_every_plan([](const Session& session, const std::string&, int) {
    session.end();
    bool right = session.reduced_to(0.0f);
    CALL(meron_reduce_discard, session.unit);
    session.give(3.0f);  // and leaves nothing behind
    session.end();
    right = right && session.reduced_to(3.0f);
    CALL(meron_reduce_discard, session.unit);
    return right;
  });
}

// Whole gradients stay on their rank until the end, so one may have given less than another.
TEST(Finish, ARankWithoutAGradientTakesPartWithZeros) {
  on_every_plan([](const Session& session, const std::string& plan, int rank) {
    if (rank != 1 || !whole_gradients(plan)) session.give(rank == 1 ? 0.0f : 6.0f);
    session.end();
    return session.reduced_to(4.0f);
  });
}

TEST(Finish, AnAccumulationCanBeDiscarded) {
  on_every_plan([](const Session& session, const std::string&, int rank) {
    session.give(100.0f);
    CALL(meron_reduce_discard, session.unit);
    session.give(static_cast<float>(rank));
    session.end();
    return session.reduced_to(1.0f);
  });
}

TEST(Finish, RejectsAnEndThatIsNotPossibleAndKeepsTheState) {
  on_every_plan([](const Session& session, const std::string&, int) {
    const auto refused = [&](meron_status expected, const meron_reduce_options* options) {
      meron_future future{};
      return meron_reduce_finish_begin(&future, session.unit, options, nullptr) == expected;
    };
    meron_reduce_options more = MERON_REDUCE_OPTIONS_INIT;
    more.boundary = 0;
    bool right = refused(MERON_E_ARGUMENT, &more);
    meron_view view{};
    CALL(meron_gradient_view, &view, session.param, 0);
    right = right && refused(MERON_E_STATE, nullptr);
    meron_future future{};
    CALL(meron_reduce_begin, &future, session.unit, nullptr, 0, &more);
    test::finish(future);
    session.end();
    right = right && refused(MERON_E_STATE, nullptr) && session.reduced_to(0.0f);
    return right;
  });
}

// Begun while the last micro-batch is still being reduced: it ends behind that.
TEST(Finish, MayBeBegunBehindAReduction) {
  on_every_plan([](const Session& session, const std::string&, int) {
    meron_view view{};
    CALL(meron_gradient_view, &view, session.param, MERON_GRADIENT_OVERWRITE);
    for (uint64_t i = 0; i < view.count; ++i) static_cast<float*>(view.data)[i] = 5.0f;
    meron_reduce_options more = MERON_REDUCE_OPTIONS_INIT;
    more.boundary = 0;
    meron_future reduced{}, ended{};
    CALL(meron_reduce_begin, &reduced, session.unit, nullptr, 0, &more);
    CALL(meron_reduce_finish_begin, &ended, session.unit, nullptr);
    test::finish(ended);
    test::finish(reduced);
    return session.reduced_to(5.0f);
  });
}

// If the end waits for a peer's call: until then no gradient is accepted, and the sum is neither
// discarded nor ended twice.
TEST(Finish, NothingComesBetweenItsBeginAndItsEnd) {
  for (const char* plan : {"zero2", "zero3"}) {
    SCOPED_TRACE(plan);
    Shared<std::atomic<int>> asked(1);
    Shared<int> right(2);
    ASSERT_TRUE(run_world({"sockets", 2, plan}, [&](int rank, meron_context context) {
      const Session session(context);
      session.give(6.0f);
      while (rank == 1 && asked[0].load() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      meron_future ended{}, second{};
      CALL(meron_reduce_finish_begin, &ended, session.unit, nullptr);
      bool refused = true;
      if (rank == 0) {
        meron_view view{};
        refused = meron_reduce_discard(session.unit, nullptr) == MERON_E_STATE;
        refused =
            meron_reduce_finish_begin(&second, session.unit, nullptr, nullptr) == MERON_E_STATE &&
            refused;
        asked[0] = 1;
        refused = meron_gradient_view(&view, session.param, 0, nullptr) == MERON_E_STATE && refused;
      }
      test::finish(ended);
      right[static_cast<size_t>(rank)] = refused && session.reduced_to(6.0f) ? 1 : 0;
    }));
    EXPECT_EQ(1, right[0]);
    EXPECT_EQ(1, right[1]);
  }
}

// The reduction has summed the squares before the change; the step uses the changed gradients.
TEST(Finish, AStepGoesByGradientsThatWereChanged) {
  on_every_plan([](const Session& session, const std::string&, int rank) {
    meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
    options.max_norm = 1.0;
    meron_optimizer optimizer{};
    CALL(meron_optimizer_create, &optimizer, &session.unit, 1, &options);
    const auto change = [&](float value) {
      session.give(1.0f);
      session.end();
      meron_view view{};
      CALL(meron_reduced_view, &view, session.param);
      for (uint64_t i = 0; i < view.count; ++i) static_cast<float*>(view.data)[i] = value;
      meron_future future{};
      CALL(meron_optimizer_step_begin, &future, optimizer);
      return future;
    };
    test::finish(change(3.0f));
    meron_optimizer_info info{};
    info.struct_size = sizeof info;
    CALL(meron_optimizer_get_info, &info, optimizer);
    bool right = std::abs(info.norm - 3.0 * std::sqrt(kSize)) < 1e-6 && info.steps == 1;
    // On one rank is on all.
    const meron_future overflow = change(rank == 0 ? HUGE_VALF : 1.0f);
    right =
        meron_future_wait(overflow, MERON_TIMEOUT_DEFAULT, nullptr) == MERON_E_NONFINITE && right;
    CALL(meron_future_release, overflow);
    test::finish(change(2.0f));
    CALL(meron_optimizer_get_info, &info, optimizer);
    return right && info.steps == 2 && std::abs(info.norm - 2.0 * std::sqrt(kSize)) < 1e-6;
  });
}

}  // namespace
}  // namespace meron::test
