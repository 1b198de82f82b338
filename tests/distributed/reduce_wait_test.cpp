// SPDX-License-Identifier: Apache-2.0
// Reductions and the ends of accumulations that are waited for together.
#include <chrono>
#include <cstdio>
#include <thread>

#include "reducing.h"

namespace meron::test {
namespace {

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

TEST(ReduceWait, ReturnsAtOnceIfNothingIsPending) {
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

// No future of the failed reduction exists: the current wait and all later ones return its error.
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

TEST(ReduceWait, ReportsAPeerThatHasClosed) {
  a_peer_leaves([](meron_context) {}, MERON_E_PEER_CLOSED);
}

TEST(ReduceWait, ReportsAPeerThatHasAborted) {
  a_peer_leaves(
      [](meron_context context) {
        meron_group world{};
        CALL(meron_context_world, &world, context);
        CALL(meron_group_abort, world, "enough");
      },
      MERON_E_ABORTED);
}

// Also if the reduction failed in a call that does not report it.
TEST(ReduceWait, LeavesAFlightRecordOfAnUnreportedFailure) {
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

// A wait rejects units that are not all of one context, also if no reduction is pending.
TEST(ReduceWait, RejectsAnInvalidListOfUnits) {
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
