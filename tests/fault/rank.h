// SPDX-License-Identifier: Apache-2.0
// One rank of a fault test: its calls throw what failed, with everything the error object said, so
// that a test can hold it against what should have been said.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "meron/meron.h"
#include "tests/distributed/ranks.h"

namespace meron::test {

inline constexpr int64_t kMilli = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

inline int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}
inline void sleep_ns(int64_t duration) {
  const timespec time{static_cast<time_t>(duration / kSecond),
                      static_cast<long>(duration % kSecond)};
  nanosleep(&time, nullptr);
}

// A call that failed, as the caller saw it.
struct CallFailed {
  meron_status status = MERON_OK;
  int32_t rank = MERON_RANK_NONE;
  int32_t peer = MERON_RANK_NONE;
  int64_t when_ns = 0;
  std::string function, operation, subject, message, advice;
};

inline CallFailed describe(meron_status status, meron_error* error, const char* function) {
  CallFailed failed;
  failed.when_ns = now_ns();
  failed.status = status;
  failed.function = function;
  failed.rank = meron_error_rank(error);
  failed.peer = meron_error_peer(error);
  failed.operation = meron_error_operation(error);
  failed.subject = meron_error_subject(error);
  failed.message = meron_error_message(error);
  failed.advice = meron_error_advice(error);
  meron_error_free(error);
  return failed;
}

// Returns the call's status if that is not an error; otherwise throws CallFailed.
#define MUST(function, ...)                                                                 \
  [&] {                                                                                     \
    meron_error* must_error = nullptr;                                                      \
    const meron_status must_status = function(__VA_ARGS__, &must_error);                    \
    if (must_status < 0) throw ::meron::test::describe(must_status, must_error, #function); \
    return must_status;                                                                     \
  }()
// The call's failure; its status is MERON_OK where it did not fail.
#define FAILURE_OF(function, ...)                                        \
  [&] {                                                                  \
    meron_error* call_error = nullptr;                                   \
    const meron_status call_status = function(__VA_ARGS__, &call_error); \
    if (call_status >= 0) return ::meron::test::CallFailed{};            \
    return ::meron::test::describe(call_status, call_error, #function);  \
  }()

// Options with which a rank opens its context.
struct Open {
  const char* transport = "shm";
  int ranks = 2;
  std::string plan = "zero3";
  std::string token;
  int64_t timeout_ns = 30 * kSecond;
  std::function<void(int rank, meron_context_options&)> adjust = nullptr;
};

// An open context with a small model on it: units "u0", "u1", ... of two params each.
class Session {
 public:
  Session(const Open& open, int rank_in) : rank(rank_in), ranks(open.ranks) {
    meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = open.ranks;
    options.transport = open.transport;
    options.token = open.token.c_str();
    options.job = open.token.c_str();
    options.timeout_ns = open.timeout_ns;
    options.arena_reserve = 128ull << 20;
    options.threads = 1;
    meron_plan plan{};
    if (open.plan.front() == '{') {
      MUST(meron_plan_parse, &plan, open.plan.data(), open.plan.size());
    } else {
      MUST(meron_plan_preset, &plan, open.plan.c_str());
    }
    options.plan = plan;
    if (open.adjust) open.adjust(rank, options);
    meron_error* error = nullptr;
    const meron_status status = meron_context_open(&context, &options, &error);
    (void)meron_plan_release(plan, nullptr);
    if (status < 0) throw describe(status, error, "meron_context_open");
    MUST(meron_context_world, &world, context);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  meron_param register_param(const std::string& name, std::vector<int64_t> shape,
                             meron_dtype dtype = MERON_F32, meron_group group = {}) {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = name.c_str();
    desc.shape = shape.data();
    desc.dims = static_cast<uint32_t>(shape.size());
    desc.dtype = dtype;
    desc.group = group;
    meron_param param{};
    MUST(meron_param_register, &param, context, &desc);
    return param;
  }

  meron_unit make_unit(const std::string& name, const std::vector<meron_param>& members) {
    meron_unit unit{};
    MUST(meron_unit_create, &unit, context, name.c_str(), members.data(), members.size());
    for (const meron_param member : members) params.push_back(member);
    units.push_back(unit);
    return unit;
  }

  // Units of different sizes, which divide by nothing.
  void build(int count = 2) {
    for (int u = 0; u < count; ++u) {
      std::string name = "u";
      name += std::to_string(u);
      const meron_param weight = register_param(name + ".weight", {37, 13 + u});
      const meron_param bias = register_param(name + ".bias", {5});
      make_unit(name, {weight, bias});
    }
    make_optimizer();
  }
  void make_optimizer() {
    meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    options.max_norm = 1.0;
    MUST(meron_optimizer_create, &optimizer, units.data(), units.size(), &options);
  }

  void wait(meron_future future) {
    MUST(meron_future_wait, future, MERON_TIMEOUT_DEFAULT);
    MUST(meron_future_release, future);
  }

  // Gathers a unit; the sum of its first param's values.
  double gather(size_t unit) {
    meron_future gather{};
    MUST(meron_gather_begin, &gather, &units[unit], 1, nullptr);
    MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    MUST(meron_gather_view, &view, gather, params[2 * unit]);
    const auto* values = static_cast<const float*>(view.data);
    double sum = 0.0;
    for (uint64_t i = 0; i < view.count; ++i) sum += static_cast<double>(values[i]);
    MUST(meron_future_release, gather);
    return sum;
  }

  // Adds `value` to every element of the unit's gradient in its bucket, and begins its reduction.
  meron_future reduce_begin(size_t unit, float value,
                            const meron_reduce_options* options = nullptr) {
    for (size_t p = 2 * unit; p < 2 * unit + 2; ++p) {
      meron_view view{};
      MUST(meron_gradient_view, &view, params[p], 0);
      auto* gradient = static_cast<float*>(view.data);
      for (uint64_t i = 0; i < view.count; ++i) gradient[i] += value;
    }
    meron_future future{};
    MUST(meron_reduce_begin, &future, units[unit], nullptr, 0, options);
    return future;
  }
  void reduce(size_t unit, float value, const meron_reduce_options* options = nullptr) {
    wait(reduce_begin(unit, value, options));
  }
  void step() {
    meron_future future{};
    MUST(meron_optimizer_step_begin, &future, optimizer);
    wait(future);
  }
  void update(size_t unit, float value) {
    meron_future update{};
    MUST(meron_update_begin, &update, &units[unit], 1);
    MUST(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    MUST(meron_update_view, &view, update, params[2 * unit]);
    auto* values = static_cast<float*>(view.data);
    std::fill(values, values + view.count, value);
    MUST(meron_update_publish, update);
  }
  void barrier(meron_group group) {
    meron_future future{};
    MUST(meron_barrier_begin, &future, group);
    wait(future);
  }
  void barrier() { barrier(world); }
  void broadcast(size_t bytes, int root) {
    std::vector<char> data(bytes, static_cast<char>(rank));
    meron_future future{};
    MUST(meron_broadcast_begin, &future, world, data.data(), bytes, root);
    wait(future);
  }
  float all_reduce(size_t count, meron_dtype dtype = MERON_F32,
                   meron_reduce_op op = MERON_REDUCE_OP_SUM) {
    std::vector<float> data(count, 1.0f);
    meron_future future{};
    MUST(meron_all_reduce_begin, &future, world, data.data(), count, dtype, op);
    wait(future);
    return data.empty() ? 0.0f : data.front();
  }

  void close() { MUST(meron_context_close, context); }

  const int rank;
  const int ranks;
  meron_context context{};
  meron_group world{};
  std::vector<meron_unit> units;
  std::vector<meron_param> params;
  meron_optimizer optimizer{};
};

}  // namespace meron::test
