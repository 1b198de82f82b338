// SPDX-License-Identifier: Apache-2.0
// Accumulations that end without another micro-batch, or are given up; and reductions and ends that
// are waited for together. (That the sums have the bits of a usual boundary is the twin test's.)
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>

#include "ranks.h"

namespace meron::test {
namespace {

constexpr int64_t kSize = 2000;  // cuts into parts of unequal size
constexpr int kRanks = 3;

struct Session {
  meron_param param{};
  meron_unit unit{};

  explicit Session(meron_context context, const std::string& name = "u", meron_group group = {}) {
    const std::string param_name = name + ".w";
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = param_name.c_str();
    desc.shape = &kSize;
    desc.dims = 1;
    desc.group = group;
    CALL(meron_param_register, &param, context, &desc);
    CALL(meron_unit_create, &unit, context, name.c_str(), &param, 1);
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
  // A micro-batch of equal values, and an end, of which nobody keeps the future.
  void give_away(float value, bool boundary) const {
    const std::vector<float> values(kSize, value);
    const meron_source source{param, values.data(), values.size(), MERON_F32, 0};
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.boundary = boundary ? 1 : 0;
    CALL(meron_reduce_begin, nullptr, unit, &source, 1, &options);
  }
  void end_away() const { CALL(meron_reduce_finish_begin, nullptr, unit, nullptr); }
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

// In one world per plan and transport, each with a flag that its ranks share.
void in_every_world(int ranks,
                    const std::function<bool(meron_context context, const std::string& plan,
                                             int rank, std::atomic<int>& flag)>& body) {
  for (const char* plan : {"zero0", "zero1", "zero2", "zero3"}) {
    for (const char* transport : {"local", "shm", "sockets"}) {
      SCOPED_TRACE(std::string(plan) + " " + transport);
      Shared<int> right(static_cast<size_t>(ranks));
      Shared<std::atomic<int>> flag(1);
      ASSERT_TRUE(run_world({transport, ranks, plan}, [&](int rank, meron_context context) {
        right[static_cast<size_t>(rank)] = body(context, plan, rank, flag[0]) ? 1 : 0;
      }));
      for (size_t rank = 0; rank < right.size(); ++rank) {
        EXPECT_EQ(1, right[rank]) << "rank " << rank;
      }
    }
  }
}

void on_every_plan(
    const std::function<bool(const Session&, const std::string& plan, int rank)>& body) {
  in_every_world(kRanks, [&](meron_context context, const std::string& plan, int rank, auto&) {
    return body(Session(context), plan, rank);
  });
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

// The reduction has taken the squares by then: what the step goes by is what it finds.
TEST(Finish, AStepGoesByGradientsThatWereChanged) {
  on_every_plan([](const Session& session, const std::string&, int rank) {
    meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    options.kind = MERON_SGD;
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

// ---- One wait for many --------------------------------------------------------------------------

constexpr int64_t kMilli = 1'000'000;
constexpr int64_t kBrokenWithin = 5'000 * kMilli;

meron_status wait_for(const std::vector<meron_unit>& units, int64_t timeout_ns) {
  return meron_reduce_wait(units.data(), units.size(), timeout_ns, nullptr);
}

// Reductions, accumulations and their ends, of the world and of a group, of units that train and
// one whose turn has not come.
TEST(ReduceWait, CoversAllThatWasBegunOfItsUnits) {
  in_every_world(kRanks, [](meron_context context, const std::string&, int rank, auto&) {
    const int32_t members[] = {0, 1};
    meron_group pair{};
    CALL(meron_group_create, &pair, context, members, 2);
    const Session at_once(context, "at_once"), summed(context, "summed"), zero(context, "zero");
    const Session idle(context, "idle");
    std::vector<meron_unit> units = {idle.unit, at_once.unit, summed.unit, zero.unit};
    std::vector<Session> of_pair;
    if (pair.id != 0) {
      of_pair.emplace_back(context, "of_pair", pair);
      units.push_back(of_pair.back().unit);
    }
    const auto mine = static_cast<float>(rank);
    bool right = true;
    for (int step = 0; step < 2; ++step) {
      at_once.give_away(3 * mine, true);
      summed.give_away(mine, false);
      for (const Session& each : of_pair) each.give_away(4 * mine, true);
      summed.give_away(5 * mine, false);
      summed.end_away();
      zero.end_away();
      right = wait_for(units, MERON_TIMEOUT_DEFAULT) == MERON_OK && right;
      right = wait_for(units, 0) == MERON_OK && right;
      right = at_once.reduced_to(3) && summed.reduced_to(6) && zero.reduced_to(0) && right;
      for (const Session& each : of_pair) right = each.reduced_to(2) && right;
      for (size_t i = 1; i < units.size(); ++i) CALL(meron_reduce_discard, units[i]);
    }
    return right;
  });
}

TEST(ReduceWait, WhatWasNotBegunIsDone) {
  on_every_plan([](const Session& session, const std::string& plan, int rank) {
    bool right = wait_for({session.unit}, 0) == MERON_OK &&
                 wait_for({session.unit, session.unit}, MERON_TIMEOUT_DEFAULT) == MERON_OK;
    if (whole_gradients(plan)) {  // what stays on its rank is done at once
      session.give_away(static_cast<float>(rank), false);
      right = right && wait_for({session.unit}, 0) == MERON_OK;
    }
    return right;
  });
}

TEST(ReduceWait, EndsWithoutErrorWhenItsTimeIsOver) {
  in_every_world(2, [](meron_context context, const std::string&, int rank, auto& asked) {
    const Session first(context, "first"), second(context, "second");
    const std::vector<meron_unit> units = {first.unit, second.unit};
    bool right = true;
    if (rank == 0) {
      first.give_away(2, true);
      second.give_away(4, true);
      right = wait_for(units, 0) == MERON_IN_PROGRESS &&
              wait_for(units, 5 * kMilli) == MERON_IN_PROGRESS;
      asked = 1;
    } else {
      while (asked.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      first.give_away(4, true);
      second.give_away(8, true);
    }
    right = wait_for(units, 20'000 * kMilli) == MERON_OK && right;
    return first.reduced_to(3) && second.reduced_to(6) && right;
  });
}

// Nobody holds the reduction that fails: the waiter hears of it, and everyone after.
void a_peer_leaves(const std::function<void(meron_context)>& leave, meron_status expected) {
  in_every_world(2, [&](meron_context context, const std::string&, int rank, auto& begun) {
    const Session fine(context, "fine"), kept(context, "kept"), idle(context, "idle");
    fine.give_away(1, true);
    if (rank == 1) {
      CALL(meron_reduce_wait, &fine.unit, 1, MERON_TIMEOUT_DEFAULT);
      while (begun.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      leave(context);
      return true;
    }
    CALL(meron_reduce_wait, &fine.unit, 1, MERON_TIMEOUT_DEFAULT);
    kept.give_away(1, true);
    begun = 1;
    const auto before = std::chrono::steady_clock::now();
    const bool told =
        wait_for({idle.unit, fine.unit, kept.unit}, MERON_TIMEOUT_DEFAULT) == expected;
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - before;
    return told && took.count() < kBrokenWithin && wait_for({kept.unit}, 0) == expected &&
           wait_for({idle.unit}, MERON_TIMEOUT_DEFAULT) == expected;
  });
}

TEST(ReduceWait, SaysThatAPeerHasClosed) {
  a_peer_leaves([](meron_context) {}, MERON_E_PEER_CLOSED);
}

TEST(ReduceWait, SaysThatAPeerHasAborted) {
  a_peer_leaves(
      [](meron_context context) {
        meron_group world{};
        CALL(meron_context_world, &world, context);
        CALL(meron_group_abort, world, "enough");
      },
      MERON_E_ABORTED);
}

// Also where the reduction failed in a call that does not tell.
TEST(ReduceWait, LeavesAFlightRecordOfWhatFailedUnheard) {
  std::string folder = testing::TempDir() + "meron-record-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder.data()));
  Shared<std::atomic<int>> begun(1);
  ASSERT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    const Session session(context);
    meron_group world{};
    CALL(meron_context_world, &world, context);
    if (rank == 1) {
      while (begun[0].load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CALL(meron_group_abort, world, "enough");
      return;
    }
    setenv("MERON_FLIGHT_RECORD", folder.c_str(), 1);
    session.give_away(1, true);
    begun[0] = 1;
    while (meron_group_status(world, nullptr) == MERON_OK) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CALL(meron_context_progress, context);
    if (wait_for({session.unit}, MERON_TIMEOUT_DEFAULT) != MERON_E_ABORTED) _exit(4);
  }));
  EXPECT_EQ(0, std::remove((folder + "/meron-flight-rank0.json").c_str()));
  EXPECT_EQ(0, std::remove(folder.c_str()));
}

// What is no list of units of one context is refused, also where nothing is under way.
TEST(ReduceWait, RefusesWhatIsNoListOfUnits) {
  ASSERT_TRUE(run_world({"self", 1, "zero3"}, [](int, meron_context context) {
    const Session session(context);
    const meron_context other = open_context({"self", 1, "zero3"}, 0, fresh_token());
    const Session foreign(other);
    meron_status found[] = {
        meron_reduce_wait(nullptr, 1, 0, nullptr),
        meron_reduce_wait(&session.unit, 0, 0, nullptr),
        wait_for({meron_unit{}}, 0),
        wait_for({session.unit, foreign.unit}, 0),
        MERON_OK,
    };
    CALL(meron_context_close, other);
    found[4] = wait_for({foreign.unit}, 0);
    const meron_status expected[] = {MERON_E_ARGUMENT, MERON_E_ARGUMENT, MERON_E_HANDLE,
                                     MERON_E_HANDLE, MERON_E_STALE};
    for (size_t i = 0; i < 5; ++i) {
      if (found[i] == expected[i]) continue;
      std::fprintf(stderr, "call %zu: %s\n", i, meron_status_name(found[i]));
      _exit(4);
    }
  }));
}

}  // namespace
}  // namespace meron::test
