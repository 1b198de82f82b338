// SPDX-License-Identifier: Apache-2.0
// Rules that hold for the arguments of all functions: *err, *out, timeouts, names of params.
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

Open alone() {
  Open open;
  open.transport = "self";
  open.ranks = 1;
  return open;
}

// ---- *err and *out
// -------------------------------------------------------------------------------

TEST(Arguments, AFailureOverwritesErrAndASuccessLeavesIt) {
  Session session(alone(), 0);
  int marker = 0;
  auto* const before = reinterpret_cast<meron_error*>(&marker);
  meron_error* error = before;
  int32_t rank = -7;
  EXPECT_EQ(MERON_OK, meron_context_rank(&rank, session.context, &error));
  EXPECT_EQ(before, error);
  EXPECT_EQ(MERON_E_HANDLE, meron_context_rank(&rank, meron_context{}, &error));
  EXPECT_NE(before, error);
  EXPECT_EQ(MERON_E_HANDLE, meron_error_code(error));
  meron_error_free(error);
  session.close();
}

TEST(Arguments, AFailureLeavesOutAlone) {
  Session session(alone(), 0);
  session.build(1);
  meron_future future{42};
  meron_view view{};
  view.count = 42;
  int32_t rank = 42;
  char text[] = "before";
  char* out = text;
  EXPECT_EQ(MERON_E_ARGUMENT,
            meron_gather_begin(&future, session.units.data(), 0, nullptr, nullptr));
  EXPECT_EQ(MERON_E_STATE, meron_reduced_view(&view, session.params[0], nullptr));
  EXPECT_EQ(MERON_E_HANDLE, meron_context_rank(&rank, meron_context{}, nullptr));
  EXPECT_EQ(MERON_E_HANDLE, meron_context_flight_record(&out, meron_context{}, nullptr));
  EXPECT_EQ(42u, future.id);
  EXPECT_EQ(42u, view.count);
  EXPECT_EQ(42, rank);
  EXPECT_EQ(text, out);
  session.close();
}

// ---- Timeouts
// ------------------------------------------------------------------------------------

// MERON_TIMEOUT_DEFAULT is the only negative timeout.
TEST(Arguments, TimeoutsBelowTheDefaultAreRefusedEverywhere) {
  Objects objects;
  const meron_future barrier = [&] {
    meron_future future{};
    MUST(meron_barrier_begin, &future, objects.a->world);
    return future;
  }();
  const auto with = [&](int64_t timeout_ns) {
    meron_context_options options = good_options();
    options.timeout_ns = timeout_ns;
    meron_io_options io_options = MERON_IO_OPTIONS_INIT;
    io_options.timeout_ns = timeout_ns;
    meron_context context{};
    meron_io io{};
    size_t place = 0;
    std::vector<CallFailed> failures = {
        FAILURE_OF(meron_future_wait, barrier, timeout_ns),
        FAILURE_OF(meron_future_wait, objects.gather, timeout_ns),
        FAILURE_OF(meron_future_wait_any, &place, &objects.gather, 1, timeout_ns),
        FAILURE_OF(meron_future_wait, objects.update, timeout_ns),
        FAILURE_OF(meron_future_wait, objects.io_request, timeout_ns),
        FAILURE_OF(meron_reduce_wait, objects.a->units.data(), 1, timeout_ns),
        FAILURE_OF(meron_schedule_enter, objects.schedule, 0, timeout_ns),
        FAILURE_OF(meron_io_wait, objects.io, timeout_ns),
        FAILURE_OF(meron_checkpoint_wait_copied, objects.a->context, timeout_ns),
        FAILURE_OF(meron_context_open, &context, &options),
        FAILURE_OF(meron_io_open, &io, &io_options),
    };
    (void)meron_context_close(context, nullptr);
    (void)meron_io_close(io, nullptr);
    return failures;
  };
  for (const int64_t timeout_ns : {int64_t{-2}, INT64_MIN}) {
    for (const CallFailed& failed : with(timeout_ns)) {
      EXPECT_EQ(MERON_E_ARGUMENT, failed.status) << failed.function << ": " << failed.message;
      EXPECT_NE(std::string::npos, failed.message.find(std::to_string(timeout_ns)))
          << failed.function << ": " << failed.message;
      EXPECT_NE(std::string::npos, failed.message.find("timeout")) << failed.message;
    }
  }
  MUST(meron_schedule_start_pass, objects.schedule, 0);
  for (const CallFailed& failed : with(MERON_TIMEOUT_DEFAULT)) {
    EXPECT_EQ(MERON_OK, failed.status) << failed.function << ": " << failed.message;
  }
  MUST(meron_schedule_leave, objects.schedule, 0);
  MUST(meron_future_release, barrier);
}

TEST(Arguments, AStreamsWaitRefusesSuchATimeoutToo) {
  Open open = alone();
  open.adjust = [](int, meron_context_options& options) { options.device = "emulated"; };
  Session session(open, 0);
  session.build(1);
  meron_future gather{};
  MUST(meron_gather_begin, &gather, session.units.data(), 1, nullptr);
  EXPECT_EQ(MERON_E_ARGUMENT, meron_gather_wait_stream(gather, nullptr, -2, nullptr));
  EXPECT_EQ(MERON_OK, meron_gather_wait_stream(gather, nullptr, MERON_TIMEOUT_DEFAULT, nullptr));
  MUST(meron_future_release, gather);
  session.close();
}

// ---- Names of params
// -----------------------------------------------------------------------------

TEST(Arguments, TheNameOfAReleasedParamIsFreeIfNoUnitHasIt) {
  Session session(alone(), 0);
  for (int i = 0; i < 3; ++i) {
    const meron_param param = session.register_param("again", {4});
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = "again";
    meron_param second{};
    EXPECT_EQ(MERON_E_DUPLICATE, meron_param_register(&second, session.context, &desc, nullptr));
    MUST(meron_param_release, param);
  }
  session.close();
}

TEST(Arguments, TheNameOfAReleasedParamIsTakenWhileAUnitHasIt) {
  Session session(alone(), 0);
  session.build(1);
  MUST(meron_param_release, session.params[0]);
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "u0.weight";
  meron_param second{};
  EXPECT_EQ(MERON_E_DUPLICATE, meron_param_register(&second, session.context, &desc, nullptr));
  MUST(meron_optimizer_release, session.optimizer);
  MUST(meron_unit_destroy, session.units[0]);
  session.register_param("u0.weight", {4});
  session.close();
}

// The unit could not be made, and the trainer begins again.
TEST(Arguments, NamesAreFreeAfterAUnitThatWasNotMade) {
  Session session(alone(), 0);
  session.build(1);
  meron_param members[2] = {session.register_param("a", {4}), session.register_param("b", {4})};
  meron_unit unit{};
  EXPECT_EQ(MERON_E_DUPLICATE,
            meron_unit_create(&unit, session.context, "u0", members, 2, nullptr));
  for (const meron_param member : members) MUST(meron_param_release, member);
  session.make_unit("second", {session.register_param("a", {3}), session.register_param("b", {5})});
  session.close();
}

// Two ranks free the name and take it again: the calls of the ranks match.
TEST(Arguments, RanksReuseANameTogether) {
  Open open;
  open.transport = "local";
  open.token = fresh_token();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        Session session(open, rank);
        MUST(meron_param_release, session.register_param("w", {4}));
        session.make_unit("u", {session.register_param("w", {7})});
        session.update(0, 3.0f);
        EXPECT_EQ(21.0, session.gather(0));
        session.close();
      } catch (const CallFailed& failed) {
        ADD_FAILURE() << "rank " << rank << ": " << failed.message;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Arguments, ALoopOfNamesKeepsNoMemory) {
  Session session(alone(), 0);
  meron_stats before{}, after{};
  before.struct_size = after.struct_size = sizeof(meron_stats);
  MUST(meron_context_stats, &before, session.context);
  for (int i = 0; i < 10'000; ++i) MUST(meron_param_release, session.register_param("p", {4}));
  MUST(meron_context_stats, &after, session.context);
  EXPECT_EQ(before.param_bytes, after.param_bytes);
  session.close();
}

}  // namespace
}  // namespace meron::test
