// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/update.h"

#include <optional>

#include "kernels/cpu/update_reference.h"
#include "runner.h"
#include "update_array.h"

namespace meron::cuda {
namespace {

using kernels::Array;
using kernels::Rule;
using kernels::StateArray;
using kernels::UpdateArrays;

// Arrays of a task where kernels use them.
class TaskMirror {
 public:
  explicit TaskMirror(UpdateArrays& arrays)
      : p_(arrays.p), g_(arrays.g), out_(arrays.out), has_out_(arrays.has_out) {
    const size_t n = arrays.p.size();
    for (StateArray& state : arrays.states) {
      const auto offset = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 64; };
      data_.emplace_back(state.data(), kernels::state_bytes(arrays.type, n), offset(state.data()));
      scales_.emplace_back(state.scales(), 4 * kernels::scale_count(arrays.type, n),
                           offset(state.scales()));
    }
  }

  UpdateTask task(size_t n, uint64_t first, uint64_t seed) const {
    UpdateTask task{
        p_.data<float>(), g_.data(), {}, {}, has_out_ ? out_.data() : nullptr, n, first, seed};
    for (size_t k = 0; k < data_.size(); ++k) {
      task.states[k] = data_[k].data();
      task.scales[k] = scales_[k].data<float>();
    }
    return task;
  }
  void read(UpdateArrays& arrays) {
    p_.read(arrays.p);
    out_.read(arrays.out);
    for (size_t k = 0; k < data_.size(); ++k) {
      data_[k].read(arrays.states[k].data());
      scales_[k].read(arrays.states[k].scales());
    }
  }

 private:
  Mirror p_, g_, out_;
  bool has_out_;
  std::vector<Mirror> data_, scales_;
};

struct Types {
  StateType state;
  Type g;
  std::optional<Type> out;
};

struct Range {
  size_t n, offset;
  uint64_t first;
};

// Several ranges by one call, twice.
void expect_updated(const std::vector<UpdateStep>& steps, const Types& types,
                    const std::vector<Range>& ranges, const StepScale* scale = nullptr) {
  SCOPED_TRACE(
      testing::Message() << kernels::name_of(steps[0].rule) << ", " << kernels::name_of(types.state)
                         << " states, " << kernels::name_of(types.g) << " gradients, "
                         << (types.out ? kernels::name_of(*types.out) : "no") << " output");
  std::vector<UpdateArrays> expected;
  std::vector<TaskMirror> mirrors;
  for (const Range& range : ranges) {
    expected.emplace_back(steps[0], types.state, range.n, types.g, types.out, range.offset,
                          range.n % 2 != 0);
    mirrors.emplace_back(expected.back());
  }
  std::optional<Mirror> on_device;
  if (scale != nullptr) on_device.emplace(mirror_of(*scale));
  for (const UpdateStep& step : steps) {
    std::vector<UpdateTask> tasks;
    for (size_t r = 0; r < ranges.size(); ++r) {
      const uint64_t seed = step.seed + r;
      tasks.push_back(mirrors[r].task(ranges[r].n, ranges[r].first, seed));
      UpdateStep own = step;
      own.seed = seed;
      if (scale != nullptr) own.grad_scale = scale->grad_scale;
      if (scale != nullptr && scale->skip != 0) continue;
      expected[r].run(kernels::update_reference, own, ranges[r].first);
    }
    ASSERT_EQ(update(step, tasks.data(), tasks.size(), types.g, types.state,
                     types.out.value_or(Type::f32),
                     on_device ? on_device->data<StepScale>() : nullptr, stream()),
              cudaSuccess);
  }
  for (size_t r = 0; r < ranges.size(); ++r) {
    SCOPED_TRACE(testing::Message() << ranges[r].n << " elements at " << ranges[r].offset);
    UpdateArrays actual(expected[r]);
    mirrors[r].read(actual);
    kernels::expect_same(actual, expected[r]);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Sums of steps that use what update_array.h calls all rules.
std::vector<std::vector<UpdateStep>> all_rules() {
  const auto first = kernels::steps_of_all_rules(1), second = kernels::steps_of_all_rules(2);
  std::vector<std::vector<UpdateStep>> steps;
  for (size_t r = 0; r < first.size(); ++r) steps.push_back({first[r], second[r]});
  return steps;
}

const std::vector<Range> kRanges = {{0, 0, 0},   {1, 0, 256},  {255, 1, 0},    {256, 0, 512},
                                    {257, 0, 0}, {1025, 5, 0}, {3000, 0, 2560}};
constexpr std::optional<Type> kOuts[] = {std::nullopt, Type::f32, Type::bf16, Type::f16};

TEST(CudaUpdate, EveryRuleAndTypeEqualsTheReference) {
  for (const auto& steps : all_rules()) {
    for (const StateType state : kernels::kStateTypes) {
      for (const Type g : kernels::kTypes) {
        for (const std::optional<Type> out : kOuts) {
          expect_updated(steps, {state, g, out}, kRanges);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(CudaUpdate, MoreTasksThanALaunchTakes) {
  std::vector<Range> ranges;
  for (size_t t = 0; t < 2 * kUpdateTasks + 3; ++t) {
    ranges.push_back({t * 53 % 400 * (t % 5 != 0), t % 3, 256 * t});
  }
  for (const StateType state : kernels::kStateTypes) {
    expect_updated({kernels::at_step(Rule::adamw, 2)}, {state, Type::bf16, Type::bf16}, ranges);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// The upper half of an element's number chooses its random bits.
TEST(CudaUpdate, ElementNumbersMayPassAMultipleOf2To32) {
  constexpr uint64_t kFar = uint64_t{1} << 32;
  for (const StateType state : {StateType::bf16, StateType::int8}) {
    const uint64_t odd = state == StateType::bf16 ? 77 : 0;
    expect_updated({kernels::at_step(Rule::adamw, 1)}, {state, Type::f32, Type::bf16},
                   {{3000, 0, kFar - 1024 + odd}, {600, 0, 5 * kFar - 512 + odd}});
  }
}

TEST(CudaUpdate, TheScaleMayComeFromTheDevice) {
  for (const auto& steps : all_rules()) {
    const StepScale scale{0.125f, 0}, skip{0.5f, 1};
    expect_updated(steps, {StateType::int8, Type::bf16, Type::bf16}, kRanges, &scale);
    expect_updated(steps, {StateType::bf16, Type::f32, std::nullopt}, kRanges, &skip);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CudaUpdate, TheCopyMayReplaceTheGradients) {
  constexpr size_t kN = 3000;
  const UpdateStep step = kernels::at_step(Rule::adamw, 1);
  UpdateArrays expected(step, StateType::f32, kN, Type::bf16, Type::bf16, 0, false);
  TaskMirror mirror(expected);
  UpdateTask task = mirror.task(kN, 0, step.seed);
  task.out = const_cast<void*>(task.g);
  ASSERT_EQ(update(step, &task, 1, Type::bf16, StateType::f32, Type::bf16, nullptr, stream()),
            cudaSuccess);
  Array g(expected.g), p(expected.p);
  copy_out(g.data(), task.out, g.size_bytes());
  copy_out(p.data(), task.p, p.size_bytes());
  expected.run(kernels::update_reference, step);
  EXPECT_TRUE(kernels::same(g, expected.out));
  EXPECT_TRUE(kernels::same(p, expected.p));
}

#if !defined(MERON_EMULATED_SIMT)  // which has no time for it
TEST(CudaUpdate, LargeArraysEqualTheReference) {
  for (const auto& steps : all_rules()) {
    for (const StateType state : kernels::kStateTypes) {
      expect_updated(steps, {state, Type::bf16, Type::bf16},
                     {{(size_t{2} << 20) + 31, 0, 0}, {1000003, 1, 0}});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}
#endif

}  // namespace
}  // namespace meron::cuda
