// SPDX-License-Identifier: Apache-2.0
// Units that end: memory and names go back on every rank, and the next unit finds zeros there.
#include <gtest/gtest.h>

#include <string>

#include "one_param.h"

namespace meron::test {
namespace {

constexpr int64_t kSize = 50'001;  // cuts into parts of unequal size, within pages

meron_stats stats_of(meron_context context) {
  meron_stats stats{};
  stats.struct_size = sizeof(stats);
  CALL(meron_context_stats, &stats, context);
  return stats;
}

// Writes, gathers and reduces, and checks the results.
void use(const OneParam& model, int64_t count, int ranks) {
  require(model.gather() == std::vector<float>(static_cast<size_t>(count), 0.0f), "zeros at first");
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000) + 1;
  model.write(values);
  require(model.gather() == values, "what was written");
  const meron_source source{model.param, values.data(), values.size(), MERON_F32, 0};
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.op = MERON_REDUCE_OP_SUM;
  meron_future future{};
  CALL(meron_reduce_begin, &future, model.unit, &source, 1, &options);
  finish(future);
  meron_view view{};
  CALL(meron_reduced_view, &view, model.param);
  for (uint64_t i = 0; i < view.count; ++i) {
    require(
        static_cast<float*>(view.data)[i] == static_cast<float>(ranks) * values[view.offset + i],
        "the sum");
  }
}

void live_and_end(int ranks, meron_context context) {
  const OneParam stays(context, 777, false, "stays.p", "stays");
  use(stays, 777, ranks);
  const std::vector<float> kept = stays.gather();
  meron_stats first{};
  for (int turn = 0; turn < 6; ++turn) {
    const int64_t count = turn % 2 == 0 ? kSize : kSize / 3;
    const meron_stats before = stats_of(context);
    const OneParam model(context, count);
    use(model, count, ranks);
    CALL(meron_unit_destroy, model.unit);
    const meron_stats after = stats_of(context);
    require(after.param_bytes == before.param_bytes, "params' memory");
    require(after.control_bytes == before.control_bytes, "control memory");
    require(after.nvme_bytes == before.nvme_bytes, "the drive's room");
    require(after.device_bytes == before.device_bytes, "the device's memory");
    // The ring of gradient buckets stays for the next unit.
    if (turn == 2) first = after;
    if (turn > 2) require(after.gradient_bytes == first.gradient_bytes, "gradients' memory");
    require(meron_unit_destroy(model.unit, nullptr) == MERON_E_STALE, "stale, twice");
    meron_param_info info{};
    info.struct_size = sizeof(info);
    require(meron_param_get_info(&info, model.param, nullptr) == MERON_E_STALE, "a stale param");
    require(stays.gather() == kept, "another unit's values");
  }
}

class Destroy : public testing::TestWithParam<std::string> {};

TEST_P(Destroy, GivesBackMemoryAndNames) {
  for (const char* transport : {"local", "shm", "sockets", "cluster"}) {
    SCOPED_TRACE(transport);
    World world{transport, 4, GetParam()};
    world.node = 2;
    EXPECT_TRUE(
        run_world(world, [&](int, meron_context context) { live_and_end(world.ranks, context); }));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Destroy,
    testing::Values("zero0", "zero1", "zero3", "mics(2)", "hpz(2)",
                    R"({"preset":"zero3","param":{"tier":"nvme"},"nvme":{"path":"."}})"),
    [](const auto& test) { return "plan" + std::to_string(test.index); });

TEST(DestroyOfOne, WorksAlone) {
  EXPECT_TRUE(run_world({"self", 1, "zero3"},
                        [](int, meron_context context) { live_and_end(1, context); }));
}

TEST(DestroyOfOne, NamesTheRankThatDoesNotCall) {
  World world{"shm", 3, "zero3"};
  world.timeout_ns = 300'000'000;
  EXPECT_TRUE(run_world(world, [](int rank, meron_context context) {
    const OneParam model(context, kSize);
    use(model, kSize, 3);
    if (rank == 1) {
      meron_group all{};
      CALL(meron_context_world, &all, context);
      while (meron_group_status(all, nullptr) == MERON_OK) usleep(10'000);
      return;
    }
    meron_error* error = nullptr;
    require(meron_unit_destroy(model.unit, &error) == MERON_E_TIMEOUT, "a deadline");
    const std::string message = meron_error_message(error);
    require(message.find("destruction of unit 'u'") != std::string::npos, "what waits");
    require(message.find("missing: rank 1") != std::string::npos, message.c_str());
    meron_error_free(error);
  }));
}

TEST(DestroyOfOne, RefusesAUnitThatIsInUseAndLeavesItAsItIs) {
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [](int, meron_context context) {
    const OneParam model(context, kSize);
    use(model, kSize, 2);
    CALL(meron_reduce_discard, model.unit);
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
    CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    require(meron_unit_destroy(model.unit, nullptr) == MERON_E_STATE, "gathered");
    CALL(meron_future_release, gather);
    meron_schedule schedule{};
    CALL(meron_schedule_create, &schedule, &model.unit, 1, nullptr);
    require(meron_unit_destroy(model.unit, nullptr) == MERON_E_STATE, "scheduled");
    CALL(meron_schedule_release, schedule);
    meron_optimizer optimizer{};
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, nullptr);
    require(meron_unit_destroy(model.unit, nullptr) == MERON_E_STATE, "optimized");
    CALL(meron_optimizer_release, optimizer);
    require(model.gather().size() == static_cast<size_t>(kSize), "still there");
    CALL(meron_unit_destroy, model.unit);
  }));
}

}  // namespace
}  // namespace meron::test
