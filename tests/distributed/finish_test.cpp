// SPDX-License-Identifier: Apache-2.0
// Accumulations that end without another micro-batch, or are given up. (That the sums have the bits
// of a usual boundary is the twin test's.)
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "ranks.h"

namespace meron::test {
namespace {

constexpr int64_t kSize = 2000;  // cuts into parts of unequal size
constexpr int kRanks = 3;

struct Session {
  meron_param param{};
  meron_unit unit{};

  explicit Session(meron_context context) {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = "w";
    desc.shape = &kSize;
    desc.dims = 1;
    CALL(meron_param_register, &param, context, &desc);
    CALL(meron_unit_create, &unit, context, "u", &param, 1);
  }

  // One micro-batch of equal values.
  void give(float value) const {
    const std::vector<float> values(kSize, value);
    const meron_source source{param, values.data(), values.size(), MERON_F32, 0};
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.boundary = 0;
    meron_future future{};
    CALL(meron_reduce_begin, &future, unit, &source, 1, &options);
    test::finish(future);
  }
  void end() const {
    meron_future future{};
    CALL(meron_reduce_finish_begin, &future, unit, nullptr);
    test::finish(future);
  }
  bool reduced_to(float value) const {
    meron_view view{};
    CALL(meron_reduced_view, &view, param);
    bool right = view.count > 0;
    for (uint64_t i = 0; i < view.count; ++i) {
      right = right && static_cast<float*>(view.data)[i] == value;
    }
    return right;
  }
};

void on_every_plan(
    const std::function<bool(const Session&, const std::string& plan, int rank)>& body) {
  for (const char* plan : {"zero0", "zero1", "zero2", "zero3"}) {
    for (const char* transport : {"local", "shm", "sockets"}) {
      SCOPED_TRACE(std::string(plan) + " " + transport);
      Shared<int> right(kRanks);
      ASSERT_TRUE(run_world({transport, kRanks, plan}, [&](int rank, meron_context context) {
        right[static_cast<size_t>(rank)] = body(Session(context), plan, rank) ? 1 : 0;
      }));
      for (size_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(1, right[rank]) << "rank " << rank;
    }
  }
}

bool whole_gradients(const std::string& plan) {
  return plan == "zero0" || plan == "zero1";
}

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

TEST(Finish, AnAccumulationCanBeGivenUp) {
  on_every_plan([](const Session& session, const std::string&, int rank) {
    session.give(100.0f);
    CALL(meron_reduce_discard, session.unit);
    session.give(static_cast<float>(rank));
    session.end();
    return session.reduced_to(1.0f);
  });
}

TEST(Finish, WhatCannotEndIsRefusedAndLeftAsItIs) {
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
    right = right && meron_reduce_finish_begin(nullptr, session.unit, nullptr, nullptr) < 0;
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

// Where a peer's call must come before the end: until then no gradient gets in between, nor is the
// sum given up or ended twice.
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

}  // namespace
}  // namespace meron::test
