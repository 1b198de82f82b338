// SPDX-License-Identifier: Apache-2.0
// Parameters on a drive, with more units than the plan has buffers: the memory that a rank counts
// at most is what the plan predicts. To the byte if all units have one size, else no more than
// that.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/distributed/ranks.h"
#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

struct Shape {
  int ranks;
  int buffers;
  std::vector<uint64_t> widths;  // of the units: each has a width x width matrix and a vector
  const char* optimizer_tier = "host";
  meron_dtype dtype = MERON_F32;
  const char* transport = "shm";
};

// Whether the prediction is the peak itself, and not a bound that timing may leave unreached.
bool exact(const Shape& shape) {
  if (shape.widths.size() <= static_cast<size_t>(shape.buffers)) return true;
  for (const uint64_t width : shape.widths) {
    if (width != shape.widths.front()) return false;
  }
  return shape.buffers > 1 || shape.ranks == 1;
}

std::string plan_of(const Shape& shape) {
  return std::string(
             R"({"preset": "zero3", "gradient": {"dtype": "f32"}, "param": {"tier": "nvme",)") +
         R"( "buffers": )" + std::to_string(shape.buffers) + R"(}, "optimizer": {"tier": ")" +
         shape.optimizer_tier + "\"" +
         (std::string(shape.optimizer_tier) == "nvme" ? R"(, "sub_group": 4096)" : "") +
         R"(}, "nvme": {"path": ".", "block": 8192, "depth": 4}})";
}

meron_unit create_unit(meron_context context, size_t index, uint64_t width, meron_dtype dtype,
                       std::vector<meron_param>& members) {
  const auto side = static_cast<int64_t>(width);
  const std::vector<std::vector<int64_t>> shapes = {{side, side}, {side}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string name = "layer" + std::to_string(index) + "." + std::to_string(i);
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = name.c_str();
    desc.shape = shapes[i].data();
    desc.dims = static_cast<uint32_t>(shapes[i].size());
    desc.dtype = dtype;
    meron_param param{};
    CALL(meron_param_register, &param, context, &desc);
    members.push_back(param);
  }
  meron_unit unit{};
  const std::string name = "layer" + std::to_string(index);
  CALL(meron_unit_create, &unit, context, name.c_str(), members.data(), members.size());
  return unit;
}

void gather_once(const meron_unit& unit) {
  meron_future gather{};
  CALL(meron_gather_begin, &gather, &unit, 1, nullptr);
  CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  CALL(meron_future_release, gather);
}

// One unit at a time, as a trainer without a schedule: forward, backward, step.
void train(meron_context context, const Shape& shape) {
  std::vector<meron_unit> units;
  std::vector<std::vector<meron_param>> members(shape.widths.size());
  for (size_t u = 0; u < shape.widths.size(); ++u) {
    units.push_back(create_unit(context, u, shape.widths[u], shape.dtype, members[u]));
  }
  for (size_t u = 0; u < units.size(); ++u) {
    meron_future update{};
    CALL(meron_update_begin, &update, &units[u], 1);
    CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    const std::vector<float> values(shape.widths[u] * shape.widths[u], 0.5f);
    CALL(meron_update_write, update, members[u][0], values.data(), values.size(), MERON_F32);
    CALL(meron_update_publish, update);
  }
  meron_optimizer optimizer{};
  meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
  CALL(meron_optimizer_create, &optimizer, units.data(), units.size(), &options);
  for (int step = 0; step < 3; ++step) {
    for (const meron_unit& unit : units) gather_once(unit);
    std::vector<meron_future> futures;
    for (size_t u = units.size(); u-- > 0;) {
      gather_once(units[u]);
      for (const meron_param& param : members[u]) {
        meron_view view{};
        CALL(meron_gradient_view, &view, param, 0);
        auto* to = static_cast<float*>(view.data);
        for (size_t k = 0; k < view.count; ++k) to[k] += 0.25f;
      }
      meron_reduce_options reduce = MERON_REDUCE_OPTIONS_INIT;
      reduce.boundary = 1;
      futures.emplace_back();
      CALL(meron_reduce_begin, &futures.back(), units[u], nullptr, 0, &reduce);
    }
    for (const meron_future future : futures) finish(future);
    meron_future stepped{};
    CALL(meron_optimizer_step_begin, &stepped, optimizer);
    finish(stepped);
  }
}

struct Peaks {
  Shared<uint64_t> counted, planned;  // by rank
  explicit Peaks(int ranks)
      : counted(static_cast<size_t>(ranks)), planned(static_cast<size_t>(ranks)) {}
  bool equal() {
    return std::equal(counted.data(), counted.data() + counted.size(), planned.data());
  }
};

void measure(const Shape& shape, Peaks& peaks) {
  const World world{shape.transport, shape.ranks, plan_of(shape)};
  ASSERT_TRUE(run_world(world, [&](int rank, meron_context context) {
    train(context, shape);
    meron_prediction plan{};
    plan.struct_size = sizeof(plan);
    const meron_workload workload = MERON_WORKLOAD_INIT;
    CALL(meron_context_predict, &plan, context, &workload);
    peaks.counted[static_cast<size_t>(rank)] = stats_of(context).peak_bytes;
    peaks.planned[static_cast<size_t>(rank)] = plan.peak_bytes;
  }));
  for (size_t rank = 0; rank < peaks.counted.size(); ++rank) {
    EXPECT_LE(peaks.counted[rank], peaks.planned[rank]) << "rank " << rank;
  }
}

// The drive may have stored one unit before a rank that waits for a CPU opens the next: then its
// buffers are never all in use, in that run.
constexpr int kTries = 10;

void expect_peak_as_planned(const Shape& shape) {
  SCOPED_TRACE(plan_of(shape) + " on " + std::to_string(shape.ranks) + " ranks, " +
               std::to_string(shape.widths.size()) + " units");
  for (int i = 1; i <= kTries; ++i) {
    Peaks peaks(shape.ranks);
    measure(shape, peaks);
    if (!exact(shape) || peaks.equal() || testing::Test::HasFailure()) return;
    for (size_t rank = 0; i == kTries && rank < peaks.counted.size(); ++rank) {
      EXPECT_EQ(peaks.counted[rank], peaks.planned[rank]) << "rank " << rank;
    }
  }
}

TEST(NvmeMemory, EqualUnitsTakeThePredictedMemory) {
  for (const int ranks : {1, 2, 3}) {
    for (const int buffers : {1, 2, 3, 5}) {
      expect_peak_as_planned({ranks, buffers, std::vector<uint64_t>(8, 128)});
    }
  }
}

TEST(NvmeMemory, UnequalUnitsTakeAtMostThePredictedMemory) {
  for (const int ranks : {1, 2, 3}) {
    for (const int buffers : {1, 2, 4}) {
      expect_peak_as_planned({ranks, buffers, {256, 96, 128, 32, 160, 96, 192, 64, 256}});
      expect_peak_as_planned({ranks, buffers, {16, 200, 16, 200, 16, 200}});
    }
  }
}

TEST(NvmeMemory, StatesOnTheDriveToo) {
  for (const meron_dtype dtype : {MERON_F32, MERON_BF16}) {
    expect_peak_as_planned({2, 5, std::vector<uint64_t>(10, 128), "nvme", dtype});
    expect_peak_as_planned({3, 2, {64, 256, 96, 160, 96, 128}, "nvme", dtype});
  }
}

TEST(NvmeMemory, OfThreads) {
  expect_peak_as_planned({3, 3, std::vector<uint64_t>(8, 96), "host", MERON_BF16, "local"});
}

// Every unit has a buffer: nothing is left to timing.
TEST(NvmeMemory, FewUnitsTakeThePredictedMemory) {
  const Shape shape{2, 5, {96, 128, 96}};
  expect_peak_as_planned(shape);
}

}  // namespace
}  // namespace meron::test
