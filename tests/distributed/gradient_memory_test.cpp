// SPDX-License-Identifier: Apache-2.0
// The first gradient allocates the memory of gradients: a model that is only loaded or gathered
// costs its values. If this allocation fails, the call returns an error and loses nothing.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/distributed/one_param.h"
#include "tests/distributed/trainer.h"
#include "tests/unit/os/child_process.h"

namespace meron::test {
namespace {

constexpr int64_t kCount = 2 << 20;
constexpr uint64_t kBytes = kCount * sizeof(float);
constexpr uint64_t kMargin = kBytes / 8;

// Pages of shared memory that this process has touched.
uint64_t shared_memory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kilobytes = 0;
  while (status >> word) {
    if (word == "RssShmem:") status >> kilobytes;
  }
  return kilobytes << 10;
}

// Bytes of shared memory for a unit that is gathered once.
uint64_t taken_by(const OneParam& model, uint64_t before) {
  model.gather();
  return shared_memory() - before;
}

class GradientMemory : public testing::TestWithParam<const char*> {};

TEST_P(GradientMemory, IsTakenByTheFirstGradient) {
  World world;
  world.plan = GetParam();
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    uint64_t before = shared_memory();
    const OneParam frozen(context, kCount, true, "frozen", "frozen");
    const uint64_t values = taken_by(frozen, before);
    before = shared_memory();
    const uint64_t counted = stats_of(context).gradient_bytes;
    const OneParam model(context, kCount);
    require(stats_of(context).gradient_bytes >= counted + kBytes / 2, "it counts at once");
    require(taken_by(model, before) < values + kMargin, "values alone have taken memory");
    const uint64_t gathered = shared_memory();
    meron_optimizer optimizer{};
    meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
    options.learning_rate = 1;
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &options);
    model.reduce_and_step(optimizer, std::vector<float>(kCount, 0.5f));
    require(shared_memory() > gathered + kBytes / 2 - kMargin, "a gradient has taken memory");
    require(model.gather() == std::vector<float>(kCount, -0.5f), "it was a step");
  }));
}

TEST_P(GradientMemory, ARefusalLosesNothing) {
  World world;
  world.plan = GetParam();
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    const OneParam model(context, kCount);
    model.write(std::vector<float>(kCount, 2));
    require(deny_syscall(SYS_madvise, ENOMEM, 23), "MADV_POPULATE_WRITE is denied");
    const std::vector<float> ones(kCount, 1);
    const meron_source source{model.param, ones.data(), ones.size(), MERON_F32, 0};
    for (int attempt = 0; attempt < 2; ++attempt) {
      meron_error* error = nullptr;
      const meron_status begun =
          meron_reduce_begin(nullptr, model.unit, &source, 1, nullptr, &error);
      require(begun == MERON_E_NO_MEMORY, "a gradient is refused");
      const std::string text = meron_error_message(error);
      require(text.find("unit 'u'") != std::string::npos, text.c_str());
      require(text.find("gradient") != std::string::npos, text.c_str());
      meron_error_free(error);
      require(meron_reduce_finish_begin(nullptr, model.unit, nullptr, nullptr) == MERON_E_NO_MEMORY,
              "the end of an accumulation is refused");
    }
    require(model.gather() == std::vector<float>(kCount, 2), "the values are as before");
  }));
}

// The lock is released while the host allocates the memory, so other threads may run before or
// after.
TEST_P(GradientMemory, TheUnitCannotBeDestroyedMeanwhile) {
  World world;
  world.plan = GetParam();
  world.ranks = 1;
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    for (int round = 0; round < 8; ++round) {
      const OneParam model(context, 4 * kCount);
      std::atomic<bool> begun{false};
      meron_status filled = MERON_OK;
      std::thread other([&] {
        begun = true;
        meron_view view{};
        filled = meron_gradient_view(&view, model.param, 0, nullptr);
      });
      while (!begun) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
      const meron_status destroyed = meron_unit_destroy(model.unit, nullptr);
      other.join();
      require((filled == MERON_OK) != (destroyed == MERON_OK), "one of them came first");
      if (destroyed == MERON_OK) continue;
      CALL(meron_reduce_begin, nullptr, model.unit, nullptr, 0, nullptr);
      CALL(meron_reduce_wait, &model.unit, 1, MERON_TIMEOUT_DEFAULT);
      CALL(meron_reduce_discard, model.unit);
      CALL(meron_unit_destroy, model.unit);
    }
  }));
}

TEST_P(GradientMemory, AContextThatIsClosedMeanwhileReportsIt) {
  for (int round = 0; round < 8; ++round) {
    World world;
    world.plan = GetParam();
    world.ranks = 1;
    const meron_context context = open_context(world, 0, fresh_token());
    const OneParam model(context, 4 * kCount);
    std::atomic<bool> begun{false};
    meron_status filled = MERON_OK;
    std::thread other([&] {
      begun = true;
      const std::vector<float> ones(4 * kCount, 1);
      const meron_source source{model.param, ones.data(), ones.size(), MERON_F32, 0};
      filled = meron_reduce_begin(nullptr, model.unit, &source, 1, nullptr, nullptr);
    });
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));
    CALL(meron_context_close, context);
    other.join();
    EXPECT_TRUE(filled == MERON_OK || filled == MERON_E_CLOSED || filled == MERON_E_STALE)
        << filled;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, GradientMemory, testing::Values("zero0", "zero1", "zero2", "zero3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace meron::test
