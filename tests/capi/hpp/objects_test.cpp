// SPDX-License-Identifier: Apache-2.0
// The C++ layer on one rank: what its objects do, what lives how long, what is thrown.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/capi/hpp/world.h"

namespace meron::test {
namespace {

using testing::HasSubstr;

// ---- Types --------------------------------------------------------------------------------------

template <class Object>
constexpr bool kMovesOnly =
    std::is_nothrow_move_constructible_v<Object>&& std::is_nothrow_move_assignable_v<Object> &&
    !std::is_copy_constructible_v<Object> && !std::is_copy_assignable_v<Object> &&
    std::is_nothrow_destructible_v<Object>;
static_assert(kMovesOnly<Context> && kMovesOnly<Plan> && kMovesOnly<Group> && kMovesOnly<Future>);
static_assert(kMovesOnly<Param> && kMovesOnly<Unit> && kMovesOnly<Update> && kMovesOnly<Gather>);
static_assert(kMovesOnly<Optimizer> && kMovesOnly<String> && kMovesOnly<Checkpoint>);
static_assert(std::is_nothrow_copy_constructible_v<Error> &&
              std::is_nothrow_copy_assignable_v<Error>);
static_assert(kMovesOnly<GatherCopy> && kMovesOnly<Entered> && kMovesOnly<Schedule>);
static_assert(std::is_convertible_v<std::vector<float>&, Span<const float>>);
static_assert(!std::is_convertible_v<const std::vector<float>&, Span<float>>);
static_assert(!std::is_convertible_v<std::vector<float>&, Span<double>>);

// Options have the initial values of the C structs.
TEST(Options, StartFromTheInitialValues) {
  const auto same = [](const auto& ours, const auto& initial) {
    return std::memcmp(&ours, &initial, sizeof(initial)) == 0;
  };
  const meron_workload workload = MERON_WORKLOAD_INIT;
  const meron_reduce_options reduce = MERON_REDUCE_OPTIONS_INIT;
  const meron_optimizer_options adamw = MERON_OPTIMIZER_ADAMW_INIT;
  const meron_optimizer_options adam = MERON_OPTIMIZER_ADAM_INIT;
  const meron_optimizer_options adagrad = MERON_OPTIMIZER_ADAGRAD_INIT;
  const meron_optimizer_options lion = MERON_OPTIMIZER_LION_INIT;
  const meron_optimizer_options sgd = MERON_OPTIMIZER_SGD_INIT;
  EXPECT_TRUE(same(Workload{}.raw(), workload));
  EXPECT_TRUE(same(ReduceOptions{}.raw(), reduce));
  const meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
  EXPECT_TRUE(same(AdamW{}.raw(), adamw));
  EXPECT_TRUE(same(OptimizerGroup{}.raw(), group));
  EXPECT_TRUE(same(Adam{}.raw(), adam));
  EXPECT_TRUE(same(Adagrad{}.raw(), adagrad));
  EXPECT_TRUE(same(Lion{}.raw(), lion));
  EXPECT_TRUE(same(Sgd{}.raw(), sgd));
}

TEST(SixteenBits, EveryValueGoesThereAndBack) {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const auto half = static_cast<float>(Float16{bits});
    const auto brain = static_cast<float>(BFloat16{bits});
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16::from(half))));
    } else {
      ASSERT_EQ(bits, Float16::from(half).bits);
    }
    if (std::isnan(brain)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16::from(brain))));
    } else {
      ASSERT_EQ(bits, BFloat16::from(brain).bits);
    }
  }
}

// The library converts too, by its own kernels: the same bits.
TEST(SixteenBits, RoundsAsTheLibraryDoes) {
  Context context = open_self();
  std::mt19937 random(7);
  std::vector<float> values(100'000);
  for (float& value : values) value = detail::float_of(static_cast<uint32_t>(random()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) values[i] = static_cast<float>(i);
    if (i % 2 == 0) values[i] = std::ldexp(static_cast<float>(random() % 65536), -40 + int(i % 41));
  }
  const Param half = context.param("f16", {100'000}, {DType::f16, true});
  const Param brain = context.param("bf16", {100'000}, {DType::bf16, true});
  const Unit unit = context.unit("unit", {half, brain});
  Update writing = update(unit);
  writing.write(half, values);
  writing.write(brain, values);
  writing.publish();
  const Gather full = gather(unit);
  const auto halves = full.view(half).as<const Float16>();
  const auto brains = full.view(brain).as<const BFloat16>();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(halves[i].bits, Float16::from(values[i]).bits) << values[i];
    ASSERT_EQ(brains[i].bits, BFloat16::from(values[i]).bits) << values[i];
  }
}

// ---- Use ----------------------------------------------------------------------------------------

TEST(Use, AScheduleKeepsWhatIsSmall) {
  Context context = open_self();
  const Param weight = context.param("weight", {4, 6});
  const Unit unit = context.unit("layer", weight);
  const Schedule used = schedule(unit);
  used.start_pass();
  {
    const Entered first = used.enter(0);
    std::optional<Entered> second = used.enter_for(0, std::chrono::seconds(1));
    ASSERT_TRUE(second);
    EXPECT_EQ(0U, second->index());
    EXPECT_EQ(24U, second->view(weight).as<float>().size());
    second->leave();
    expect_error(MERON_E_HANDLE, [&] { second->leave(); });
    EXPECT_EQ(24U, first.view(weight).as<float>().size());
    const Error error = expect_error(MERON_E_STATE, [&] { used.reset(); });
    EXPECT_THAT(error.advice(), HasSubstr("Schedule::enter"));
    EXPECT_EQ(1U, used.info().entered);
  }
  EXPECT_EQ(0U, used.info().entered);
  EXPECT_EQ(1U, unit.info().leases);
  used.drop();
  EXPECT_EQ(0U, unit.info().leases);
  used.reset();
  EXPECT_EQ(2U, used.info().uses);
  const Schedule alone = schedule({unit}, {0, 0, 0, 0, 0});
  static_cast<void>(alone.enter(0));
  EXPECT_EQ(0U, unit.info().leases);
}

TEST(Use, FromARegistrationToAStep) {
  Context context = open_self();
  EXPECT_EQ(0, context.rank());
  EXPECT_EQ(1, context.world_size());
  EXPECT_EQ("self", context.transport());
  const Param weight = context.param("weight", {4, 6});
  const std::vector<int64_t> shape = {5};
  const Param bias = context.param(std::string("bias"), shape, {DType::bf16});
  const Param scale = context.param("scale", {});
  EXPECT_EQ("bias", bias.name());
  EXPECT_EQ(DType::bf16, bias.dtype());
  EXPECT_EQ(24U, weight.size());
  EXPECT_EQ(0U, scale.info().dims);
  const Unit unit = context.unit("layer", {weight, bias, scale});
  EXPECT_EQ(MERON_UNIT_STATE_PARTITIONED, unit.info().state);

  Update writing = update({unit});
  for (float& x : writing.view(weight).as<float>()) x = 2;
  writing.write(bias, std::array<float, 5>{1, 2, 3, 4, 5});
  writing.publish();
  EXPECT_FALSE(writing);
  EXPECT_EQ(1U, unit.info().version);

  {
    const Gather full = gather(unit);
    const View view = full.view(weight);
    EXPECT_EQ(0U, view.raw().writable);
    EXPECT_EQ(96U, view.size_bytes());
    for (const float x : view.as<const float>()) EXPECT_EQ(2, x);
    EXPECT_EQ(4, static_cast<float>(full.view(bias).as<const BFloat16>()[3]));
    EXPECT_EQ(1U, unit.info().leases);
  }
  EXPECT_EQ(0U, unit.info().leases);
  const GatherCopy copy = gather_copy(unit);
  EXPECT_TRUE(copy.poll());
  EXPECT_EQ(static_cast<meron_status>(MERON_OK), copy.try_poll());
  copy.view(weight).as<float>()[0] = 9;
  EXPECT_EQ(9, copy.view(weight).as<const float>()[0]);
  std::vector<float> into(24);
  gather_into(unit, {destination(weight, into)});
  EXPECT_EQ(std::vector<float>(24, 2), into);

  const Optimizer optimizer = adamw(unit, {0.5, 0.9, 0.999, 1e-8, 0.0});
  for (float& x : gradient(weight).as<float>()) x += 1;
  for (float& x : gradient(scale).as<float>()) x += 1;
  reduce(unit, {ReduceOp::sum});
  EXPECT_EQ(1, reduced(scale).as<const float>()[0]);
  discard(unit);
  const std::vector<float> ones(24, 1);
  const float one = 1;
  reduce(unit, {source(scale, one)});
  EXPECT_EQ(1, reduced(scale).as<const float>()[0]);
  discard(unit);
  reduce(unit, {source(weight, ones)});
  optimizer.step();
  EXPECT_EQ(1U, optimizer.info().steps);
  EXPECT_NEAR(std::sqrt(24.0), optimizer.info().norm, 1e-12);
  EXPECT_NEAR(0.1F, optimizer.state(weight, OptimizerState::exp_avg).as<float>()[0], 1e-7);
  const MutableView master = optimizer.state(weight, OptimizerState::master);
  EXPECT_EQ(24U, master.as<const float>().size());
  expect_error(MERON_E_STATE, [&] { master.as<float>(); });
  gather_into(unit, {destination(weight, into)});
  EXPECT_NEAR(1.5F, into[0], 1e-6);
  optimizer.set_learning_rate(0);
  EXPECT_EQ(0, optimizer.info().learning_rate);
  optimizer.set_steps(7);
  EXPECT_EQ(7U, optimizer.info().steps);
  expect_error(MERON_E_ARGUMENT, [&] { optimizer.set_steps(UINT64_MAX); });

  reduce_begin(unit, {source(weight, ones)}, {ReduceOp::sum, false}).wait();
  reduce_begin(unit, {source(weight, ones)}, {ReduceOp::sum, false}).wait();
  static_cast<void>(reduce_finish_begin(unit, {ReduceOp::sum}));  // its future is given away
  EXPECT_TRUE(wait_reductions_for(unit, std::chrono::seconds(20)));
  wait_reductions({unit});
  EXPECT_EQ(2, reduced(weight).as<const float>()[23]);
  discard(unit);
  reduce_begin(unit, {source(weight, ones)}, {ReduceOp::sum, false}).wait();
  reduce_finish(unit, {ReduceOp::sum});
  EXPECT_EQ(1, reduced(weight).as<const float>()[23]);
  discard(unit);
}

TEST(Use, ShapesOfAnyIntegers) {
  Context context = open_self();
  const size_t rows = 3;
  const std::vector<uint32_t> sizes = {2, 5};
  EXPECT_EQ(6U, context.param("a", {rows, 2}).size());
  EXPECT_EQ(10U, context.param(std::string_view("b-c", 1), sizes).size());
  const Error error = expect_error(MERON_E_ARGUMENT, [&] {
    context.param("c", {rows - 4, size_t{2}});
  });
  EXPECT_THAT(error.what(), HasSubstr("dimension 0 of 'c' is -1"));
  expect_error(MERON_E_ARGUMENT, [&] { context.param("d", std::vector<int>(17, 1)); });
}

TEST(Use, Flats) {
  const Context context = open_self();
  const Param weight = context.param("weight", {2, 3});
  const Param half = context.param("half", {5}, {DType::bf16});
  const Param bias = context.param("bias", {4});
  const Unit unit = context.unit("unit", {weight, half, bias});
  Update writing = update(unit);
  writing.write(weight, std::vector<float>(6, 2));
  writing.write(half, std::vector<float>(5, 3));
  writing.write(bias, std::vector<float>(4, 4));
  writing.publish();
  const std::vector<meron_flat_info> flats = unit.flats();
  ASSERT_EQ(2U, flats.size());
  EXPECT_EQ(64U, flats[0].elements);
  EXPECT_EQ(static_cast<meron_dtype>(MERON_BF16), flats[1].dtype);
  EXPECT_EQ(32U, bias.info().flat_offset);
  std::vector<float> into(flats[0].elements);
  gather_into(unit, {flat_destination(unit, 0, into)});
  EXPECT_EQ(2, into[5]);
  EXPECT_EQ(4, into[35]);

  std::vector<BFloat16> halves(5);
  const std::vector<meron_destination> params = {destination(half, halves)};
  const std::vector<meron_flat_destination> all = {flat_destination(unit, 0, into)};
  const Gather both = gather_into_begin(unit, params, all);
  both.wait();
  EXPECT_EQ(3, static_cast<float>(halves[4]));
  EXPECT_EQ(into.data() + 32, both.view(bias).as<float>().data());

  expect_error(MERON_E_ARGUMENT, [&] { flat_destination(unit, 0, halves); });
  expect_error(MERON_E_ARGUMENT, [&] { flat_destination(unit, 2, into); });
  into.pop_back();
  expect_error(MERON_E_ARGUMENT, [&] { gather_into(unit, {flat_destination(unit, 0, into)}); });
  const std::vector<meron_flat_destination> twice = {all[0], all[0]};
  expect_error(MERON_E_DUPLICATE,
               [&] { static_cast<void>(gather_into_begin(unit, params, twice)); });
}

// All results of these numbers are exact.
TEST(Use, Rules) {
  const Context context = open_self();
  const Param weight = context.param("weight", {8});
  const Unit unit = context.unit("unit", weight);
  const std::vector<float> twos(8, 2);
  const auto stepped = [&](const Optimizer& optimizer, float value, uint32_t states) {
    EXPECT_EQ(states, optimizer.info().states);
    Update writing = update(unit);
    writing.view(weight).as<float>()[0] = 2;
    writing.publish();
    reduce_begin(unit, {source(weight, twos)}).wait();
    optimizer.step();
    std::vector<float> values(8);
    gather_into(unit, {destination(weight, values)});
    EXPECT_EQ(value, values[0]);
  };
  stepped(adam(unit, {0.25, 0.5, 0.75, 2.0, 0.0}), 1.875F, 2);
  stepped(adagrad(unit, {0.5, 1.0, 0.5}), 1.625F, 1);
  stepped(lion(unit, {0.25, 0.5, 0.75, 0.5}), 1.5F, 1);
  stepped(sgd(unit, {0.5}), 1.0F, 0);
  const Optimizer nesterov = sgd(unit, {0.25, 0.5, 0.0, true});
  stepped(nesterov, 1.25F, 1);
  expect_error(MERON_E_ARGUMENT,
               [&] { (void)nesterov.read_state(weight, OptimizerState::exp_avg_sq); });
}

TEST(Use, SkippedParamsKeepTheirCounts) {
  const Context context = open_self();
  const Param weight = context.param("weight", {8}), bias = context.param("bias", {3});
  const Param loose = context.param("loose", {2});
  const Unit unit = context.unit("unit", {weight, bias});
  const Optimizer optimizer = sgd(unit, {0.5});
  const std::vector<float> of_weight(8, 2), of_bias(3, 2);
  const auto step = [&] {
    reduce_begin(unit, {source(weight, of_weight), source(bias, of_bias)}).wait();
    optimizer.step();
  };
  optimizer.skip(bias);
  step();
  EXPECT_EQ(1U, optimizer.param_steps(weight));
  EXPECT_EQ(0U, optimizer.param_steps(bias));
  EXPECT_EQ(std::vector<float>(3, 0), optimizer.read_state(bias, OptimizerState::master));
  EXPECT_EQ(std::vector<float>(8, -1), optimizer.read_state(weight, OptimizerState::master));
  optimizer.skip({});
  step();
  EXPECT_EQ(2U, optimizer.param_steps(weight));
  EXPECT_EQ(1U, optimizer.param_steps(bias));
  EXPECT_EQ(std::vector<float>(3, -1), optimizer.read_state(bias, OptimizerState::master));
  optimizer.set_param_steps(weight, 9);
  EXPECT_EQ(9U, optimizer.param_steps(weight));
  optimizer.set_steps(4);
  EXPECT_EQ(4U, optimizer.param_steps(weight));
  EXPECT_EQ(4U, optimizer.param_steps(bias));
  expect_error(MERON_E_ARGUMENT, [&] { optimizer.skip({weight, loose}); });
  expect_error(MERON_E_ARGUMENT, [&] { (void)optimizer.param_steps(loose); });
  expect_error(MERON_E_ARGUMENT, [&] { optimizer.set_param_steps(loose, 1); });
  expect_error(MERON_E_ARGUMENT, [&] { optimizer.set_param_steps(weight, UINT64_MAX); });
}

TEST(Use, OnlyAdagradDecaysItsRate) {
  const Context context = open_self();
  const Param weight = context.param("weight", {8});
  const Unit unit = context.unit("unit", weight);
  Adagrad rule = {0.5, 3.0, 0.0};
  rule.lr_decay = -1;
  expect_error(MERON_E_ARGUMENT, [&] { (void)adagrad(unit, rule); });
  rule.lr_decay = 1;
  const Optimizer optimizer = adagrad(unit, rule);
  EXPECT_EQ(1, optimizer.group(0).lr_decay);
  for (const float gradient : {3.0F, 4.0F}) {
    const std::vector<float> gradients(8, gradient);
    reduce_begin(unit, {source(weight, gradients)}).wait();
    optimizer.step();
  }
  EXPECT_EQ(std::vector<float>(8, -0.375F), optimizer.read_state(weight, OptimizerState::master));
  OptimizerGroup group = optimizer.group(0);
  group.lr_decay = 0.25;
  optimizer.set_group(0, group);
  EXPECT_EQ(0.25, optimizer.group(0).lr_decay);
}

TEST(Use, AGroupStartsFromOneOfItsOptimizer) {
  const Context context = open_self();
  const Param weight = context.param("weight", {8}), bias = context.param("bias", {3});
  const Unit unit = context.unit("unit", {weight, bias});
  const Optimizer optimizer = lion(unit);
  expect_error(MERON_E_ARGUMENT, [&] { optimizer.add_group(bias, OptimizerGroup{}); });
  OptimizerGroup group = optimizer.group(0);
  EXPECT_EQ(1e-4, group.learning_rate);
  EXPECT_EQ(0.99, group.beta2);
  group.learning_rate = 0;
  EXPECT_EQ(0, optimizer.group(optimizer.add_group(bias, group)).learning_rate);
}

TEST(Use, GroupsAndStates) {
  const Plan plan = Plan::parse(R"({"preset": "zero3", "optimizer": {"dtype": "bf16"}})");
  const Context context = open_self([&](ContextOptions& options) { options.plan = &plan; });
  const Param weight = context.param("weight", {8}), bias = context.param("bias", {3});
  const Unit unit = context.unit("unit", {weight, bias});
  const Optimizer optimizer = adamw(unit);
  OptimizerGroup group = optimizer.group(0);
  EXPECT_EQ(0.01, group.weight_decay);
  group.weight_decay = 0;
  EXPECT_EQ(1U, optimizer.add_group(bias, group));
  EXPECT_EQ(0, optimizer.group(1).weight_decay);
  group.learning_rate = 0.5;
  optimizer.set_group(1, group);
  EXPECT_EQ(0.5, optimizer.group(1).learning_rate);
  EXPECT_EQ(2U, optimizer.info().groups);
  OptimizerGroup decaying = group;
  decaying.lr_decay = 0.5;
  expect_error(MERON_E_ARGUMENT, [&] { optimizer.set_group(1, decaying); });
  expect_error(MERON_E_DUPLICATE, [&] { optimizer.add_group({weight, bias}, group); });
  expect_error(MERON_E_ARGUMENT, [&] { (void)optimizer.group(2); });

  const std::vector<float> halves(8, 0.5F);
  optimizer.write_state(weight, OptimizerState::exp_avg, halves);
  EXPECT_EQ(halves, optimizer.read_state(weight, OptimizerState::exp_avg));
  std::vector<float> zeros(3, 1.0F);
  optimizer.read_state(bias, OptimizerState::exp_avg_sq, zeros);
  EXPECT_EQ(std::vector<float>(3), zeros);
  expect_error(MERON_E_UNSUPPORTED,
               [&] { (void)optimizer.state(weight, OptimizerState::exp_avg); });
  expect_error(MERON_E_ARGUMENT,
               [&] { optimizer.write_state(bias, OptimizerState::exp_avg, halves); });
}

TEST(Use, WhatTellsAboutTheContext) {
  const Plan plan = Plan::parse(R"({"preset": "zero1", "name": "mine"})");
  EXPECT_THAT(std::string(plan.json()), HasSubstr("mine"));
  EXPECT_THAT(std::string(plan.table()), HasSubstr("optimizer"));
  const std::string model = R"({"parameters": 1000000, "layers": 4, "dtype": "f32"})";
  EXPECT_NE(std::string(plan.predict(model, {4})),
            std::string(plan.predict(model, {4}, Form::table)));
  Context context = open_self([&](ContextOptions& options) { options.plan = &plan; });
  context.progress();
  EXPECT_GT(context.stats().control_bytes, 0U);
  EXPECT_EQ(0U, context.predict({1, 3, 2}).gradient_bytes);
  EXPECT_THAT(std::string(context.flight_record()), HasSubstr("["));
  EXPECT_EQ(version(), static_cast<uint32_t>(MERON_VERSION));
  EXPECT_THAT(std::string(system_info()), HasSubstr(version_string()));

  const Group world = context.world();
  EXPECT_EQ(1, world.size());
  world.check();
  world.barrier();
  std::array<float, 3> values = {1, 2, 3};
  world.all_reduce(values);
  world.broadcast(values, 0);
  float loss = 4;
  world.all_reduce(loss, ReduceOp::mean);
  double wide[1] = {4};
  world.all_reduce(wide);
  world.all_reduce_begin(Span<float>(&loss, 1)).wait();
  EXPECT_EQ(4, loss);
  EXPECT_EQ(4, wide[0]);
  EXPECT_TRUE(context.group({0}));
  std::ostringstream text;
  text << DType::bf16 << ' ' << Tier::host << ' ' << plan.json();
  EXPECT_THAT(text.str(), testing::StartsWith("bf16 host {"));
  EXPECT_EQ(plan.json().str(), Plan::parse(plan.json()).json().str());
}

TEST(Use, RangesOfManyObjectsAndOfPointers) {
  Context context = open_self();
  std::vector<Param> params;
  for (int i = 0; i < 40; ++i) params.push_back(context.param("p" + std::to_string(i), {3}));
  std::vector<Unit> units;
  for (size_t i = 0; i < params.size(); ++i) {
    units.push_back(context.unit("u" + std::to_string(i), params[i]));
  }
  update(units).publish();
  std::vector<const Unit*> some;
  for (size_t i = 0; i < units.size(); i += 3) some.push_back(&units[i]);
  const Gather full = gather(some);
  EXPECT_EQ(3U, full.view(params[39]).size());
  EXPECT_THROW(full.view(params[1]), Error);
  EXPECT_THROW(gather(std::vector<const Unit*>{nullptr}), Error);
}

TEST(Use, HandlesGoInAndOut) {
  Context context = open_self();
  Param param = context.param("p", {3});
  const meron_param raw = param.detach();
  EXPECT_FALSE(param);
  Param again(adopt, raw);
  EXPECT_EQ(3U, again.size());
  again.reset();
  expect_error(MERON_E_HANDLE, [&] { again.info(); });
  Param taken(context.param("q", {1}));
  taken = context.param("r", {2});
  EXPECT_EQ(2U, taken.size());
  const Param other = context.param("s", {2});
  EXPECT_TRUE(taken == taken && taken != other);
  EXPECT_EQ(std::hash<Param>()(other), std::hash<Param>()(other));
  EXPECT_TRUE(context == context);
}

// ---- Errors -------------------------------------------------------------------------------------

TEST(Errors, HaveAllFields) {
  Context context = open_self();
  const Param param = context.param("twice", {1});
  const Error error =
      expect_error(MERON_E_DUPLICATE, [&] { const Param other = context.param("twice", {1}); });
  EXPECT_STREQ("MERON_E_DUPLICATE", error.status_name());
  EXPECT_STREQ("param_register", error.operation());
  EXPECT_STREQ("twice", error.subject());
  EXPECT_THAT(error.what(), HasSubstr("twice"));
  EXPECT_STRNE("", error.advice());
  EXPECT_EQ(0, error.rank());
  EXPECT_EQ(MERON_RANK_NONE, error.peer());
  EXPECT_TRUE(error.is_of_call());
  EXPECT_FALSE(error.is_of_group());
  EXPECT_EQ(nullptr, error.cause());
}

TEST(Errors, WithoutAnErrorObjectHaveTheStatus) {
  const Error error(MERON_E_NO_MEMORY, nullptr);
  EXPECT_STREQ("MERON_E_NO_MEMORY", error.what());
  EXPECT_STREQ("", error.operation());
  EXPECT_TRUE(error.is_of_resource());
}

TEST(Errors, OfTextWithNulBytes) {
  Context context = open_self();
  const std::string text("a\0b", 3);
  expect_error(MERON_E_ARGUMENT, [&] { context.param(text, {1}); });
  expect_error(MERON_E_ARGUMENT, [&] { Plan::preset(text); });
  expect_error(MERON_E_ARGUMENT, [&] { open_self([&](ContextOptions& o) { o.job = text; }); });
  expect_error(MERON_E_ARGUMENT, [&] { context.param(nullptr, {1}); });
  expect_error(MERON_E_ARGUMENT, [&] { context.param("\xff\xfe", {1}); });
}

TEST(Errors, OfViewsOfAnotherType) {
  Context context = open_self();
  const Param param = context.param("p", {3});
  const Unit unit = context.unit("u", param);
  const Gather full = gather(unit);
  expect_error(MERON_E_ARGUMENT, [&] { full.view(param).as<const Float16>(); });
  std::vector<BFloat16> wrong(3);
  expect_error(MERON_E_ARGUMENT, [&] { gather_into(unit, {destination(param, wrong)}); });
  std::vector<float> short_of_one(2);
  expect_error(MERON_E_ARGUMENT, [&] { gather_into(unit, {destination(param, short_of_one)}); });
}

TEST(Errors, OfUseAfterClose) {
  Context context = open_self();
  const Param param = context.param("p", {3});
  const Unit unit = context.unit("u", param);
  const Group world = context.world();
  const Optimizer optimizer = adamw(unit);
  const Gather full = gather(unit);
  Update writing;
  context.close();
  expect_error(MERON_E_STALE, [&] { context.close(); });
  expect_error(MERON_E_STALE, [&] { context.rank(); });
  expect_error(MERON_E_STALE, [&] { context.param("q", {1}); });
  expect_error(MERON_E_STALE, [&] { param.info(); });
  expect_error(MERON_E_STALE, [&] { const Gather late = gather(unit); });
  expect_error(MERON_E_STALE, [&] { full.view(param); });
  expect_error(MERON_E_STALE, [&] { world.barrier(); });
  expect_error(MERON_E_STALE, [&] { optimizer.step(); });
  expect_error(MERON_E_HANDLE, [&] { writing.publish(); });
}

TEST(Errors, OfWhatWasMovedFromOrHoldsNothing) {
  Context context = open_self();
  Context moved(std::move(context));
  expect_error(MERON_E_HANDLE, [&] { context.rank(); });  // NOLINT: that is what is tested
  EXPECT_EQ(0, moved.rank());
  context = std::move(moved);
  EXPECT_EQ(0, context.rank());
  Context nothing(nullptr);
  EXPECT_FALSE(nothing);
  expect_error(MERON_E_HANDLE, [&] { nothing.world(); });
  expect_error(MERON_E_HANDLE, [&] { Gather().wait(); });
  expect_error(MERON_E_HANDLE, [&] { (void)Future().poll(); });
  EXPECT_EQ(static_cast<meron_status>(MERON_E_HANDLE), Future().try_poll());
  expect_error(MERON_E_HANDLE, [&] { Plan().table(); });
}

}  // namespace
}  // namespace meron::test
