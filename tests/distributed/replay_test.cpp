// SPDX-License-Identifier: Apache-2.0
// Schedules over several ranks: every use sees the values of its version, with any prefetched or
// kept units; ranks that use other units get an error, or continue, but never hang.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>

#include "ranks.h"

namespace meron::test {
namespace {

constexpr size_t kUnits = 6;

struct Session {
  std::vector<meron_param> params{kUnits};
  std::vector<meron_unit> units{kUnits};
  meron_schedule schedule{};
  meron_context context;

  Session(meron_context context_in, const meron_schedule_options& options) : context(context_in) {
    for (size_t i = 0; i < kUnits; ++i) {
      const int64_t size = static_cast<int64_t>(700 + 300 * i);
      const std::string name = std::string("u").append(std::to_string(i));
      meron_param_desc desc = MERON_PARAM_DESC_INIT;
      desc.name = name.c_str();
      desc.shape = &size;
      desc.dims = 1;
      CALL(meron_param_register, &params[i], context, &desc);
      CALL(meron_unit_create, &units[i], context, name.c_str(), &params[i], 1);
    }
    CALL(meron_schedule_create, &schedule, units.data(), units.size(), &options);
  }

  // Every element of every unit becomes `value` plus the unit's index.
  void update(float value) {
    CALL(meron_schedule_drop, schedule);
    meron_future update{};
    CALL(meron_update_begin, &update, units.data(), units.size());
    CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    for (size_t i = 0; i < kUnits; ++i) {
      meron_view view{};
      CALL(meron_update_view, &view, update, params[i]);
      for (uint64_t k = 0; k < view.count; ++k) {
        static_cast<float*>(view.data)[k] = value + static_cast<float>(i);
      }
    }
    CALL(meron_update_publish, update);
  }

  bool use(size_t index, float value) {
    CALL(meron_schedule_enter, schedule, index, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_schedule_view, &view, schedule, params[index]);
    bool right = view.count == 700 + 300 * index;
    for (uint64_t k = 0; k < view.count; ++k) {
      right = right && static_cast<const float*>(view.data)[k] == value + static_cast<float>(index);
    }
    CALL(meron_schedule_leave, schedule, index);
    return right;
  }

  meron_schedule_info info() {
    meron_schedule_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_schedule_get_info, &info, schedule);
    return info;
  }
};

meron_schedule_options options_of(uint64_t prefetch, uint64_t reuse, uint64_t live,
                                  uint64_t persist) {
  meron_schedule_options options = MERON_SCHEDULE_OPTIONS_INIT;
  options.prefetch_elements = prefetch;
  options.max_reuse_elements = reuse;
  options.max_live_elements = live;
  options.persist_elements = persist;
  return options;
}

TEST(Replay, EveryUseSeesItsVersion) {
  const meron_schedule_options all_options[] = {MERON_SCHEDULE_OPTIONS_INIT, options_of(0, 0, 0, 0),
                                                options_of(2000, 3000, 5000, 700),
                                                options_of(4000, 0, 1'000'000, 0)};
  for (const char* plan : {"zero0", "zero1", "zero3"}) {
    for (const char* transport : {"local", "shm", "sockets"}) {
      for (const meron_schedule_options& options : all_options) {
        SCOPED_TRACE(std::string(plan) + " " + transport);
        Shared<int> right(3);
        ASSERT_TRUE(run_world({transport, 3, plan}, [&](int rank, meron_context context) {
          Session session(context, options);
          std::mt19937 random(5);  // NOLINT: the same on all ranks
          std::vector<size_t> order = {0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0};
          bool good = true;
          for (int step = 0; step < 12; ++step) {
            session.update(static_cast<float>(100 * step));
            if (step % 4 == 3) std::swap(order[random() % 12], order[random() % 12]);
            for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
              CALL(meron_schedule_start_pass, session.schedule, 0);
              for (const size_t unit : order) {
                good = session.use(unit, static_cast<float>(100 * step)) && good;
              }
            }
          }
          right[static_cast<size_t>(rank)] = good && session.info().entered == 0 ? 1 : 0;
          CALL(meron_schedule_release, session.schedule);
        }));
        for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(1, right[rank]) << "rank " << rank;
      }
    }
  }
}

TEST(Replay, TheSecondPassMeetsItsGathersAhead) {
  for (const char* transport : {"local", "shm", "sockets"}) {
    SCOPED_TRACE(transport);
    Shared<int> right(2);
    ASSERT_TRUE(run_world({transport, 2, "zero3"}, [&](int rank, meron_context context) {
      Session session(context, options_of(1, 0, 1'000'000, 0));
      for (int pass = 0; pass < 2; ++pass) {
        CALL(meron_schedule_start_pass, session.schedule, 0);
        for (size_t unit = 0; unit < kUnits; ++unit) (void)session.use(unit, 0.0f);
      }
      const meron_schedule_info info = session.info();
      right[static_cast<size_t>(rank)] =
          info.uses == 2 * kUnits && info.ahead == kUnits - 1 && info.deviations == 0 ? 1 : 0;
    }));
    EXPECT_EQ(1, right[0]);
    EXPECT_EQ(1, right[1]);
  }
}

// If no gather was prefetched, the next gather differs, and the error names both units. If the
// skipped unit was prefetched, both ranks have posted the same gathers and continue. No rank hangs.
TEST(Replay, ARankThatSkipsAUnitFailsOrContinues) {
  for (const char* transport : {"local", "shm", "sockets"}) {
    for (const uint64_t prefetch : {0, 1, 2500, 1'000'000}) {
      SCOPED_TRACE(std::string(transport) + " prefetch " + std::to_string(prefetch));
      Shared<int> told(2), names_both(2);
      Shared<double> seconds(2);
      ASSERT_TRUE(run_world({transport, 2, "zero3"}, [&](int rank, meron_context context) {
        Session session(context, options_of(prefetch, 0, 1'000'000, 0));
        meron_group world{};
        CALL(meron_context_world, &world, context);
        for (size_t unit = 0; unit < kUnits; ++unit) {
          if (unit == 0) CALL(meron_schedule_start_pass, session.schedule, 0);
          (void)session.use(unit, 0.0f);
        }
        CALL(meron_schedule_start_pass, session.schedule, 0);
        const auto begun = std::chrono::steady_clock::now();
        meron_error* err = nullptr;
        meron_status status = MERON_OK;
        for (size_t unit = 0; unit < kUnits && status >= 0; ++unit) {
          if (rank == 1 && unit == 1) continue;
          status = meron_schedule_enter(session.schedule, unit, MERON_TIMEOUT_DEFAULT, &err);
          if (status >= 0) CALL(meron_schedule_leave, session.schedule, unit);
        }
        meron_future barrier{};
        if (status >= 0) status = meron_barrier_begin(&barrier, world, &err);
        if (status >= 0) status = meron_future_wait(barrier, MERON_TIMEOUT_DEFAULT, &err);
        const auto self = static_cast<size_t>(rank);
        seconds[self] =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        told[self] = status < 0 ? 1 : 0;
        const std::string message = err != nullptr ? meron_error_message(err) : "";
        names_both[self] = status == MERON_E_MISMATCH &&
                                   message.find("'u1'") != std::string::npos &&
                                   message.find("'u2'") != std::string::npos
                               ? 1
                               : 0;
        meron_error_free(err);
        CALL(meron_schedule_reset, session.schedule);
      }));
      for (size_t rank = 0; rank < 2; ++rank) {
        EXPECT_LT(seconds[rank], 1.0);
        EXPECT_EQ(prefetch == 0 ? 1 : 0, told[rank]);
        EXPECT_EQ(prefetch == 0 ? 1 : 0, names_both[rank]);
      }
    }
  }
}

// A reset takes the gather from an enter that waits in another thread: that must not say that the
// unit is full.
TEST(Replay, AnEnterFailsIfItsUnitIsReset) {
  for (const char* transport : {"local", "shm"}) {
    SCOPED_TRACE(transport);
    Shared<std::atomic<int>> was_reset(1);
    Shared<int> told(1);
    ASSERT_TRUE(run_world({transport, 2, "zero3"}, [&](int rank, meron_context context) {
      Session session(context, MERON_SCHEDULE_OPTIONS_INIT);
      meron_future update{};
      CALL(meron_update_begin, &update, session.units.data(), session.units.size());
      CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
      while (rank == 1 && was_reset[0].load() == 0) std::this_thread::yield();
      CALL(meron_update_publish, update);  // no gather is full before both have
      if (rank == 1) {
        CALL(meron_schedule_enter, session.schedule, 0, MERON_TIMEOUT_DEFAULT);
        CALL(meron_schedule_leave, session.schedule, 0);
        return;
      }
      meron_status entered = MERON_OK;
      std::thread other([&] {
        entered = meron_schedule_enter(session.schedule, 0, MERON_TIMEOUT_DEFAULT, nullptr);
      });
      while (session.info().entered == 0) std::this_thread::yield();
      CALL(meron_schedule_reset, session.schedule);
      was_reset[0] = 1;
      other.join();
      told[0] = entered == MERON_E_STATE ? 1 : 0;
    }));
    EXPECT_EQ(1, told[0]);
  }
}

// A pending step has published its values on one rank and not yet on the other. The calls are the
// same all the same.
TEST(Replay, ASchedulesUnitsMayBeStepping) {
  for (const char* transport : {"local", "shm"}) {
    SCOPED_TRACE(transport);
    Shared<std::atomic<int>> reached(1);
    const auto meet = [&](int place) {
      while (reached[0].load() < place) std::this_thread::yield();
    };
    Shared<int> well(2);
    ASSERT_TRUE(run_world({transport, 2, "zero3"}, [&](int rank, meron_context context) {
      Session session(context, MERON_SCHEDULE_OPTIONS_INIT);
      const meron_unit& unit = session.units[0];
      meron_optimizer optimizer{};
      CALL(meron_optimizer_create, &optimizer, &unit, 1, nullptr);
      CALL(meron_reduce_finish_begin, nullptr, unit, nullptr);
      meron_future step{}, barrier{};
      // Rank 1 knows all that rank 0 needs, and looks no further before it makes the schedule.
      meet(rank);
      CALL(meron_optimizer_step_begin, &step, optimizer);
      reached[0] = rank + 1;
      meet(2 + rank);
      if (rank == 0) test::finish(step);
      reached[0] = 3;
      meron_schedule schedule{};
      CALL(meron_schedule_create, &schedule, session.units.data(), kUnits, nullptr);
      if (rank == 1) test::finish(step);
      meron_group world{};
      CALL(meron_context_world, &world, context);
      CALL(meron_barrier_begin, &barrier, world);
      test::finish(barrier);
      well[static_cast<size_t>(rank)] = 1;
    }));
    EXPECT_EQ(1, well[0]);
    EXPECT_EQ(1, well[1]);
  }
}

// If ranks share no memory, a prefetched gather completes only after the peers have begun it, too.
// The time since the prefetch does not count as a wait of this rank.
TEST(Replay, APrefetchedGatherHasItsDeadlineFromItsUse) {
  constexpr int64_t kTimeoutNs = 2'000'000'000;
  World world{"sockets", 2, "zero3"};
  world.timeout_ns = kTimeoutNs;
  Shared<std::atomic<int>> asked(1);
  Shared<int> right(2);
  ASSERT_TRUE(run_world(world, [&](int rank, meron_context context) {
    Session session(context, options_of(1, 0, 1'000'000, 0));
    session.update(0.0f);
    bool good = true;
    for (int pass = 0; pass < 2; ++pass) {
      CALL(meron_schedule_start_pass, session.schedule, 0);
      for (const size_t unit : {0, 1, 2}) {
        if (pass == 1 && rank == 0 && unit == 2) {  // prefetched by the use of 1
          std::this_thread::sleep_for(std::chrono::nanoseconds(kTimeoutNs * 5 / 4));
          asked[0] = 1;
        }
        if (pass == 1 && rank == 1 && unit == 1) {  // begins 2 ahead
          while (asked[0].load() == 0) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        good = session.use(unit, 0.0f) && good;
      }
    }
    right[static_cast<size_t>(rank)] = good && session.info().ahead == 2 ? 1 : 0;
  }));
  EXPECT_EQ(1, right[0]);
  EXPECT_EQ(1, right[1]);
}

TEST(Replay, RanksWithDifferentSchedulesFail) {
  for (const char* transport : {"local", "shm"}) {
    Shared<int> told(2);
    ASSERT_TRUE(run_world({transport, 2, "zero3"}, [&](int rank, meron_context context) {
      Session session(context, MERON_SCHEDULE_OPTIONS_INIT);
      meron_schedule_options options = MERON_SCHEDULE_OPTIONS_INIT;
      if (rank == 1) options.prefetch_elements = 7;
      meron_schedule schedule{};
      meron_status status =
          meron_schedule_create(&schedule, session.units.data(), kUnits, &options, nullptr);
      if (status >= 0) {
        meron_group world{};
        meron_future barrier{};
        CALL(meron_context_world, &world, context);
        status = meron_barrier_begin(&barrier, world, nullptr);
        if (status >= 0) status = meron_future_wait(barrier, MERON_TIMEOUT_DEFAULT, nullptr);
      }
      told[static_cast<size_t>(rank)] = status == MERON_E_MISMATCH ? 1 : 0;
    }));
    EXPECT_EQ(1, told[0]);
    EXPECT_EQ(1, told[1]);
  }
}

}  // namespace
}  // namespace meron::test
