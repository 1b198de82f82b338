// SPDX-License-Identifier: Apache-2.0
// Four threads use, release and close the same handles. A call on a released handle returns
// MERON_E_STALE, and no object is freed while a call uses it. The reports of the sanitizers count
// as much as the statuses.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

constexpr int kThreads = 4;
constexpr int kCalls = kSanitized ? 4'000 : 20'000;

// Handles that all threads see. A thread that takes one may release it while others use it.
template <class Handle>
class Pool {
 public:
  Handle peek(Random& random) const { return {slots_[random.below(kSlots)].load()}; }
  // The handle that was there before, to be released.
  Handle swap(Handle fresh, Random& random) {
    return {slots_[random.below(kSlots)].exchange(fresh.id)};
  }

 private:
  static constexpr size_t kSlots = 8;
  std::array<std::atomic<uint64_t>, kSlots> slots_{};
};

struct Pools {
  Pool<meron_param> params;
  Pool<meron_future> gathers;
  Pool<meron_future> futures;
  Pool<meron_group> groups;
  Pool<meron_plan> plans;
  std::atomic<int> names{0};
};

// Counts of a thread's calls; `odd` counts unexpected statuses.
struct Tally {
  std::atomic<int> calls{0};
  std::atomic<int> stale{0};
  std::atomic<int> odd{0};
  std::atomic<meron_status> odd_status{0};

  void count(meron_status status) {
    ++calls;
    // E_HANDLE: a slot that was never filled holds null.
    if (status == MERON_E_STALE || status == MERON_E_CLOSED || status == MERON_E_HANDLE) ++stale;
    if (status >= 0 || status == MERON_E_STALE || status == MERON_E_HANDLE ||
        status == MERON_E_CLOSED || status == MERON_E_CANCELLED) {
      return;
    }
    ++odd;
    odd_status = status;
  }
};

void storm(const Session& session, Pools& pools, Tally& tally, uint64_t seed, int calls) {
  Random random(seed);
  for (int i = 0; i < calls; ++i) {
    switch (random.below(12)) {
      case 0: {
        meron_param_desc desc = MERON_PARAM_DESC_INIT;
        const std::string name = "storm " + std::to_string(++pools.names);
        desc.name = name.c_str();
        meron_param param{};
        tally.count(meron_param_register(&param, session.context, &desc, nullptr));
        tally.count(meron_param_release(pools.params.swap(param, random), nullptr));
        break;
      }
      case 1: {
        meron_param_info info = sized<meron_param_info>();
        tally.count(meron_param_get_info(&info, pools.params.peek(random), nullptr));
        break;
      }
      case 2: {
        meron_future gather{};
        tally.count(
            meron_gather_begin(&gather, &session.units[random.below(2)], 1, nullptr, nullptr));
        tally.count(meron_future_release(pools.gathers.swap(gather, random), nullptr));
        break;
      }
      case 3: {
        const meron_future gather = pools.gathers.peek(random);
        tally.count(meron_future_wait(gather, 0, nullptr));
        break;
      }
      case 4: {
        meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
        options.mode = MERON_GATHER_COPY;
        meron_future gather{};
        tally.count(meron_gather_begin(&gather, session.units.data(), 2, &options, nullptr));
        tally.count(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, nullptr));
        tally.count(meron_future_release(gather, nullptr));
        break;
      }
      case 5: {
        meron_future future{};
        tally.count(meron_barrier_begin(&future, session.world, nullptr));
        tally.count(meron_future_release(pools.futures.swap(future, random), nullptr));
        break;
      }
      case 6:
        tally.count(meron_future_wait(pools.futures.peek(random), 0, nullptr));
        break;
      case 7: {
        meron_group group{};
        tally.count(meron_context_world(&group, session.context, nullptr));
        tally.count(meron_group_release(pools.groups.swap(group, random), nullptr));
        break;
      }
      case 8: {
        int32_t size = 0;
        tally.count(meron_group_size(&size, pools.groups.peek(random), nullptr));
        break;
      }
      case 9: {
        meron_plan plan{};
        tally.count(meron_plan_preset(&plan, "zero1", nullptr));
        tally.count(meron_plan_release(pools.plans.swap(plan, random), nullptr));
        break;
      }
      case 10: {
        char* text = nullptr;
        tally.count(meron_plan_json(&text, pools.plans.peek(random), nullptr));
        meron_string_free(text);
        break;
      }
      default: {
        meron_stats stats = sized<meron_stats>();
        tally.count(meron_context_stats(&stats, session.context, nullptr));
        meron_error* error = nullptr;
        tally.count(meron_context_close(meron_context{session.context.id ^ 1}, &error));
        meron_error_free(error);
      }
    }
  }
}

Open alone() {
  Open open;
  open.transport = "self";
  open.ranks = 1;
  return open;
}

TEST(Storm, OfFindsAndReleases) {
  Session session(alone(), 0);
  session.build();
  Pools pools;
  Tally tally;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back(
        [&, t] { storm(session, pools, tally, static_cast<uint64_t>(t + 1), kCalls); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0, tally.odd.load()) << meron_status_name(tally.odd_status.load());
  EXPECT_GT(tally.stale.load(), 0) << "nothing was raced for";
  EXPECT_LT(tally.stale.load(), tally.calls.load() / 2);
  // The leases that are left in the pool are the only ones.
  meron_unit_info info = sized<meron_unit_info>();
  uint32_t leases = 0;
  for (const meron_unit unit : session.units) {
    ASSERT_EQ(MERON_OK, meron_unit_get_info(&info, unit, nullptr));
    leases += info.leases;
  }
  EXPECT_LE(leases, 8u);
  session.close();
}

// One thread closes while the others work. They get MERON_E_STALE or MERON_E_CLOSED from then on.
TEST(Storm, WhileTheContextIsClosed) {
  for (int round = 0; round < (kSanitized ? 10 : 40); ++round) {
    Session session(alone(), 0);
    session.build();
    Pools pools;
    Tally tally;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        storm(session, pools, tally, static_cast<uint64_t>(round * kThreads + t), 300);
      });
    }
    while (tally.calls.load() < 300) std::this_thread::yield();
    const int64_t begun = now_ns();
    EXPECT_EQ(MERON_OK, meron_context_close(session.context, nullptr));
    EXPECT_LT(now_ns() - begun, 5 * kSecond);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(0, tally.odd.load()) << meron_status_name(tally.odd_status.load());
    EXPECT_EQ(MERON_E_STALE, meron_context_close(session.context, nullptr));
  }
}

// Two ranks as threads, each with two more that release, find and gather. Collectives stay in
// order on one thread of each rank; what needs no order is done by all.
TEST(Storm, BesideATrainingJob) {
  Open open;
  open.transport = "local";
  open.token = fresh_token();
  std::atomic<int> failures{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        Session session(open, rank);
        session.build();
        std::atomic<bool> done{false};
        std::vector<std::thread> others;
        for (int t = 0; t < 2; ++t) {
          others.emplace_back([&] {
            while (!done.load()) {
              meron_stats stats = sized<meron_stats>();
              meron_unit_info info = sized<meron_unit_info>();
              meron_group group{};
              char* record = nullptr;
              if (meron_context_stats(&stats, session.context, nullptr) != MERON_OK ||
                  meron_unit_get_info(&info, session.units[0], nullptr) != MERON_OK ||
                  meron_context_progress(session.context, nullptr) != MERON_OK ||
                  meron_context_world(&group, session.context, nullptr) != MERON_OK ||
                  meron_group_status(group, nullptr) != MERON_OK ||
                  meron_group_release(group, nullptr) != MERON_OK ||
                  meron_context_flight_record(&record, session.context, nullptr) != MERON_OK) {
                ++failures;
              }
              meron_string_free(record);
              std::this_thread::yield();
            }
          });
        }
        for (int step = 0; step < 30; ++step) {
          session.gather(0);
          session.reduce(1, 1.0f);
          session.reduce(0, 1.0f);
          session.step();
          if (session.all_reduce(5) != 2.0f) ++failures;
        }
        done = true;
        for (std::thread& other : others) other.join();
        session.close();
      } catch (const CallFailed& failed) {
        std::fprintf(stderr, "%s\n", failed.message.c_str());
        ++failures;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(0, failures.load());
}

// A DLPack tensor outlives its gather and its context.
TEST(Storm, DlpackTensorsOutliveTheContext) {
  auto session = std::make_unique<Session>(alone(), 0);
  session->build();
  session->update(0, 2.5f);
  std::vector<DlpackTensor*> tensors;
  meron_future gather{};
  MUST(meron_gather_begin, &gather, &session->units[0], 1, nullptr);
  MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  for (int i = 0; i < 8; ++i) {
    DLManagedTensorVersioned* tensor = nullptr;
    MUST(meron_gather_dlpack, &tensor, gather, session->params[0]);
    tensors.push_back(reinterpret_cast<DlpackTensor*>(tensor));
  }
  MUST(meron_future_release, gather);
  meron_future update{};
  EXPECT_EQ(MERON_E_STATE, meron_update_begin(&update, &session->units[0], 1, nullptr))
      << "the tensors have leases of their own";
  for (int i = 0; i < 4; ++i) {
    tensors.back()->deleter(tensors.back());
    tensors.pop_back();
  }
  session->close();
  for (const DlpackTensor* tensor : tensors) {
    EXPECT_EQ(1u, tensor->major);
    EXPECT_EQ(2.5f, static_cast<const float*>(tensor->data)[37 * 13 - 1]);
  }
  std::vector<std::thread> threads;
  for (DlpackTensor* tensor : tensors) {
    threads.emplace_back([tensor] { tensor->deleter(tensor); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace meron::test
