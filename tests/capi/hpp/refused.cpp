// SPDX-License-Identifier: Apache-2.0
// What the C++ layer refuses at compile time, and what it takes. test_hpp.py compiles this file; no
// program has it.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <meron/meron.hpp>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace {

// Objects with a name. M is this struct: an expression is only refused quietly if it depends on a
// template parameter.
struct Named {
  using Context = meron::Context;
  using Float = float;
  static Context& context();
  static const Context& const_context();
  static const meron::Plan& plan();
  static const meron::Group& group();
  static const meron::Param& param();
  static const meron::Unit& unit();
  static meron::Update& update();
  static const meron::Gather& gather();
  static const meron::GatherCopy& copy();
  static const meron::Optimizer& optimizer();
  static meron::Schedule& schedule();
  static meron::Entered& entered();
  static const meron::Checkpoint& checkpoint();
  static const meron::Io& io();
  static const char* text();
  static std::vector<float>& floats();
  static std::vector<float> temporary();
};

#define COMPILES(...) \
  ([]<class M>(M) {   \
    return requires { \
      __VA_ARGS__;    \
    };                \
  }(Named{}))

// ---- What would dangle or be lost ---------------------------------------------------------------

static_assert(COMPILES(M::update().write(M::param(), M::temporary())));
static_assert(!COMPILES(meron::update(M::unit()).write(M::param(), M::floats())));
static_assert(COMPILES(M::update().view(M::param())));
static_assert(!COMPILES(meron::update(M::unit()).view(M::param())));
static_assert(COMPILES(M::gather().view(M::param())));
static_assert(!COMPILES(meron::gather(M::unit()).view(M::param())));
static_assert(!COMPILES(meron::gather_copy(M::unit()).view(M::param())));
static_assert(COMPILES(M::optimizer().state(M::param(), meron::OptimizerState::exp_avg)));
static_assert(!COMPILES(meron::adamw(M::unit()).state(M::param(), meron::OptimizerState::exp_avg)));
static_assert(COMPILES(M::entered().view(M::param())));
static_assert(!COMPILES(M::schedule().enter(0).view(M::param())));

static_assert(COMPILES(std::string(M::context().flight_record())));
static_assert(!COMPILES(std::string_view(M::context().flight_record())));
static_assert(!std::is_convertible_v<meron::String, std::string_view>);
static_assert(std::is_convertible_v<meron::String&, std::string_view>);
static_assert(COMPILES(M::plan().json().str()));
static_assert(!COMPILES(M::plan().json().c_str()));
static_assert(COMPILES(M::param().name()));
static_assert(!COMPILES(M::context().param("w", {4}).name()));
static_assert(!COMPILES(M::context().unit("w", M::param()).name()));
static_assert(COMPILES(M::context().transport()));
static_assert(!COMPILES((typename M::Context()).transport()));
static_assert(COMPILES(M::checkpoint().path()));
static_assert(!COMPILES(meron::open_checkpoint(M::text()).path()));

static_assert(COMPILES(M::io().read_begin("x", M::floats())));
static_assert(!COMPILES(M::io().read_begin("x", M::temporary())));
static_assert(!COMPILES(M::io().read("x", M::temporary())));
static_assert(COMPILES(M::io().write("x", M::temporary())));
static_assert(!COMPILES(M::io().write("x", M::floats().data())), "a pointer has no size");
static_assert(!COMPILES(M::update().write(M::param(), M::floats().data())));
static_assert(COMPILES(M::io().write_begin("x", M::floats())));
static_assert(!COMPILES(M::io().write_begin("x", M::temporary())));
static_assert(!COMPILES(M::checkpoint().read("x", M::temporary())));
static_assert(COMPILES(meron::destination(M::param(), M::floats())));
static_assert(!COMPILES(meron::destination(M::param(), M::temporary())));
static_assert(!COMPILES(meron::flat_destination(M::unit(), 0, M::temporary())));
static_assert(COMPILES(meron::source(M::param(), M::floats())));
static_assert(!COMPILES(meron::source(M::param(), M::temporary())));
static_assert(!COMPILES(meron::checkpoint_tensor("x", {4}, M::temporary())));
static_assert(COMPILES(M::group().all_reduce(M::floats())));
static_assert(!COMPILES(M::group().all_reduce(M::temporary())));
static_assert(!COMPILES(M::group().all_reduce_begin(M::temporary())));
static_assert(!COMPILES(M::group().all_reduce(1.0F)));
static_assert(!COMPILES(M::group().all_reduce(M::floats().data())), "a pointer has no size");
static_assert(COMPILES(M::group().broadcast(M::floats(), 0)));
static_assert(!COMPILES(M::group().broadcast(M::temporary(), 0)));
static_assert(!COMPILES(M::group().broadcast_begin(M::temporary(), 0)));

static_assert(COMPILES(M::context().param("a text" + std::string("and more"), {4})));
static_assert(!std::is_constructible_v<meron::Text, std::string>);
static_assert(!std::is_constructible_v<meron::Text, double>);
static_assert(!COMPILES(meron::Span<const typename M::Float>({1.0F, 2.0F, 3.0F})));
static_assert(!std::is_convertible_v<std::vector<float>, meron::Span<const float>>);
static_assert(!std::is_convertible_v<std::initializer_list<float>, meron::Span<const float>>);
static_assert(std::is_convertible_v<std::span<float>, meron::Span<const float>>);

// ---- What would be another object than it seems -------------------------------------------------

static_assert(!COMPILES((typename M::Context(0))));
static_assert(COMPILES((typename M::Context(nullptr))));
static_assert(COMPILES(M::context().close()));
static_assert(!COMPILES(M::const_context().close()));
using RawFuture = meron::Handle<meron_future, meron_future_release>;
static_assert(!std::is_constructible_v<RawFuture, meron::Update>, "an update without publish");
static_assert(!std::is_constructible_v<meron::Future, meron::Update>);
static_assert(!std::is_constructible_v<meron::Future, meron_future>, "two owners");
static_assert(std::is_constructible_v<meron::Future, meron::Adopt, meron_future>);
static_assert(!std::is_constructible_v<meron::Update, meron_future>, "a gather as an update");
static_assert(!std::is_copy_constructible_v<meron::Unit>);
static_assert(!std::is_constructible_v<meron::AnyFuture, const meron::IoRequest&>);
static_assert(!COMPILES(M::schedule().view(M::param())), "a use has the view, and ends it");
static_assert(!COMPILES(M::schedule().leave(0)));
static_assert(!COMPILES(M::gather().view(M::param()).template as<float>()[0] = 1));
static_assert(COMPILES(M::copy().view(M::param()).template as<float>()[0] = 1));
static_assert(COMPILES(M::update().view(M::param()).template as<float>()[0] = 1));
static_assert(!COMPILES(M::entered().view(M::param()).template as<float>()[0] = 1));

// The namespace has the version.
#define TEXT_OF_(name) #name
#define TEXT_OF(name) TEXT_OF_(name)
static_assert(std::string_view(TEXT_OF(MERON_CPP_NAMESPACE)) ==
              "v" TEXT_OF(MERON_VERSION_MAJOR) "_" TEXT_OF(MERON_VERSION_MINOR));

// ---- What a user of C++20 tries -----------------------------------------------------------------

[[maybe_unused]] void uses(meron::Context& context, const meron::Group& group,
                           const meron::Unit& unit, const meron::Param& w,
                           const std::vector<meron::Unit>& units, size_t rows, size_t columns) {
  const meron::Update update = meron::update(unit);
  const meron::Gather full = meron::gather(units);
  [[maybe_unused]] std::span<float> written = update.view(w).as<float>();
  [[maybe_unused]] std::span<const float> read = full.view(w).as<float>();
#if !defined(__clang__) || __clang_major__ >= 16  // earlier ones lack what libstdc++ needs for it
  static_cast<void>(std::ranges::max(full.view(w).as<const float>() | std::views::take(3)));
#endif

  const std::vector<int64_t> sizes = {4, 5};
  const std::string_view name = "w";
  context.param("a", std::span<const int64_t>(sizes));
  context.param("b", sizes, {.dtype = meron::DType::bf16});
  context.param("c", {rows, columns});
  context.param("d", {rows, 4});
  context.param("e", {});
  context.param(name, {4});

  const std::filesystem::path folder = "runs";
  meron::save_checkpoint(context, folder, "step-1");
  static_cast<void>(meron::load_checkpoint(context, folder / "step-1"));
  const meron::Optimizer optimizer = meron::adamw(unit, {.learning_rate = 0.02, .weight_decay = 0});
  std::unordered_map<meron::Param, int> counts;
  counts.emplace(context.param("f", {1}), 1);
  static_cast<void>(counts.find(w) == counts.end() || w == w);

  double wide[1] = {0};
  float loss = 0;
  float losses[1] = {0};
  int64_t count = 1;
  std::vector<int64_t> seeds(1);
  std::vector<float> floats(4);
  group.all_reduce(wide);
  group.all_reduce(loss);
  group.all_reduce(losses, meron::ReduceOp::max);
  group.all_reduce(count);
  group.all_reduce(std::span<float>(floats));
  group.broadcast(seeds, 0);
  group.broadcast(count, 0);
  const meron::Future first = group.all_reduce_begin(floats, meron::ReduceOp::sum);
  const std::vector<meron::AnyFuture> pending = {first, full, update};
  static_cast<void>(meron::wait_any(pending) + meron::wait_any({first, full}));
  std::cout << meron::DType::f32 << context.flight_record();
}

}  // namespace
