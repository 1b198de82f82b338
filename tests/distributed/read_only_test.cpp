// SPDX-License-Identifier: Apache-2.0
// Memory that users may only read is mapped read-only under every plan: a write ends the process
// that writes, and no rank sees another number.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <string>
#include <vector>

#include "tests/conformance/c/dlpack.h"
#include "tests/distributed/one_param.h"
#include "tests/unit/os/child_process.h"

namespace meron::test {
namespace {

constexpr int64_t kCount = 5000;

// A forked child, which shares the memory, writes there.
bool faults(const void* place) {
  const int ended = run_in_child([&] {
    std::signal(SIGSEGV, SIG_DFL);
    *static_cast<volatile float*>(const_cast<void*>(place)) = 7.0f;
    return 0;
  });
  require(ended == 0 || ended == 1000 + SIGSEGV, "it writes, or is a fault");
  return ended != 0;
}

void expect_refused(const meron_view& view) {
  require(view.writable == 0 && view.count > 0, "a view for reading");
  const auto* const values = static_cast<const float*>(view.data);
  for (const uint64_t at : {uint64_t{0}, view.count / 2, view.count - 1}) {
    require(faults(values + at), "a write to what is read-only is a fault");
  }
}

void expect_all(const meron_view& view, float wanted) {
  for (uint64_t i = 0; i < view.count; ++i) {
    const float value = static_cast<const float*>(view.data)[i];
    require(std::fabs(value - wanted) < 0.01f, "the values that were written last");
  }
}

// Calls `use` with the view of a gather.
template <class Use>
void gathered(const OneParam& model, meron_gather_mode mode, Use use) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = mode;
  meron_future gather{};
  CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
  CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  meron_view view{};
  CALL(meron_gather_view, &view, gather, model.param);
  require(view.count == kCount, "a whole tensor");
  use(view, gather);
  CALL(meron_future_release, gather);
}

void barrier(meron_context context) {
  meron_future barrier{};
  meron_group world{};
  CALL(meron_context_world, &world, context);
  CALL(meron_barrier_begin, &barrier, world);
  finish(barrier);
}

struct Way {
  const char* name;
  World world;
};

World cluster(const char* plan) {
  World world{.transport = "cluster", .ranks = 4, .plan = plan};
  world.node = 2;
  return world;
}

// Each plan, the transports, and values that travel by a codec.
std::vector<Way> all_ways() {
  std::vector<Way> ways = {
      {"zero0_alone", {.transport = "self", .ranks = 1, .plan = "zero0"}},
      {"zero3_alone", {.transport = "self", .ranks = 1, .plan = "zero3"}},
      {"zero0", {.plan = "zero0"}},
      {"zero1", {.plan = "zero1"}},
      {"zero2", {.plan = "zero2"}},
      {"zero3", {.plan = "zero3"}},
      {"zero1_local", {.transport = "local", .plan = "zero1"}},
      {"zero3_local", {.transport = "local", .plan = "zero3"}},
      {"zero1_sockets", {.transport = "sockets", .plan = "zero1"}},
      {"zero3_sockets", {.transport = "sockets", .plan = "zero3"}},
      {"zero1_nodes", cluster("zero1")},
      {"zero3_nodes", cluster("zero3")},
      {"mics", {.ranks = 4, .plan = "mics(2)"}},
      {"mics_nodes", cluster("mics(2)")},
      {"hpz", {.ranks = 4, .plan = "hpz(2)"}},
      {"hpz_nodes", cluster("hpz(2)")},
      {"zeropp_nodes", cluster("zeropp(2)")},
  };
  return ways;
}

class ReadOnly : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (kThreadSanitized) GTEST_SKIP() << "under ThreadSanitizer views are writable";
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, ReadOnly, testing::ValuesIn(all_ways()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ReadOnly, AWriteToAGatheredViewIsAFaultAndChangesNoRank) {
  EXPECT_TRUE(run_world(GetParam().world, [](int, meron_context context) {
    const OneParam model(context, kCount);
    for (const float value : {1.0f, 2.0f}) {  // the second time at addresses that were used
      model.write(std::vector<float>(kCount, value));
      gathered(model, MERON_GATHER_VIEW, [&](const meron_view& view, meron_future gather) {
        expect_refused(view);
        DLManagedTensorVersioned* tensor = nullptr;
        CALL(meron_gather_dlpack, &tensor, gather, model.param);
        require(tensor->dl_tensor.data == view.data, "the memory of the view");
        tensor->deleter(tensor);
        barrier(context);
        expect_all(view, value);
        barrier(context);
      });
    }
  }));
}

TEST_P(ReadOnly, AViewOfAScheduleToo) {
  EXPECT_TRUE(run_world(GetParam().world, [](int, meron_context context) {
    const OneParam model(context, kCount);
    model.write(std::vector<float>(kCount, 1.0f));
    meron_schedule schedule{};
    CALL(meron_schedule_create, &schedule, &model.unit, 1, nullptr);
    CALL(meron_schedule_start_pass, schedule, 0);
    CALL(meron_schedule_enter, schedule, 0, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_schedule_view, &view, schedule, model.param);
    expect_refused(view);
    CALL(meron_schedule_leave, schedule, 0);
    CALL(meron_schedule_release, schedule);
  }));
}

// An update writes in place. The next readers see that through their own mapping.
TEST_P(ReadOnly, ViewsShowWhatAnUpdateWroteInPlace) {
  EXPECT_TRUE(run_world(GetParam().world, [](int, meron_context context) {
    const OneParam model(context, kCount);
    for (const float value : {1.0f, 2.0f}) {
      meron_future update{};
      CALL(meron_update_begin, &update, &model.unit, 1);
      CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
      meron_view part{};
      CALL(meron_update_view, &part, update, model.param);
      require(part.writable == 1, "a view for writing");
      for (uint64_t i = 0; i < part.count; ++i) static_cast<float*>(part.data)[i] = value;
      CALL(meron_update_publish, update);
      gathered(model, MERON_GATHER_VIEW,
               [&](const meron_view& view, meron_future) { expect_all(view, value); });
    }
    gathered(model, MERON_GATHER_COPY, [&](const meron_view& view, meron_future) {
      require(view.writable == 1 && !faults(view.data), "a copy is the caller's");
    });
  }));
}

// The f32 values that an optimizer updates are the param itself, if that is f32.
TEST_P(ReadOnly, AMasterThatIsTheParamIsReadOnlyAndFollowsTheSteps) {
  EXPECT_TRUE(run_world(GetParam().world, [](int, meron_context context) {
    const OneParam model(context, kCount);
    model.write(std::vector<float>(kCount, 1.0f));
    meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
    options.learning_rate = 0.5;
    options.beta1 = 0.9;  // a momentum, so that there is an average
    meron_optimizer optimizer{};
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &options);
    for (const float value : {1.0f, 0.5f}) {
      meron_view master{}, average{};
      CALL(meron_optimizer_state_view, &master, optimizer, model.param,
           MERON_OPTIMIZER_STATE_MASTER);
      expect_refused(master);
      CALL(meron_optimizer_state_view, &average, optimizer, model.param,
           MERON_OPTIMIZER_STATE_EXP_AVG);
      require(average.writable == 1 && !faults(average.data), "an average may be written");
      static_cast<float*>(average.data)[0] = static_cast<float*>(average.data)[1];
      barrier(context);
      expect_all(master, value);
      model.reduce_and_step(optimizer, std::vector<float>(kCount, 1.0f));
    }
  }));
}

}  // namespace
}  // namespace meron::test
