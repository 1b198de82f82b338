// SPDX-License-Identifier: Apache-2.0
// A unit of one param whose gradients are equal values, in a world of each plan and transport.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "ranks.h"

namespace meron::test {

inline constexpr int64_t kSize = 2000;  // cuts into parts of unequal size
inline constexpr int kRanks = 3;

struct Session {
  meron_param param{};
  meron_unit unit{};

  explicit Session(meron_context context, const std::string& name = "u", meron_group group = {}) {
    const std::string param_name = name + ".w";
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = param_name.c_str();
    desc.shape = &kSize;
    desc.dims = 1;
    desc.group = group;
    CALL(meron_param_register, &param, context, &desc);
    CALL(meron_unit_create, &unit, context, name.c_str(), &param, 1);
  }

  // One micro-batch of equal values.
  void give(float value) const {
    const std::vector<float> values(kSize, value);
    const meron_source source{param, values.data(), values.size(), MERON_F32, 0};
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.boundary = 0;
    meron_future future{};
    CALL(meron_reduce_begin, &future, unit, &source, 1, &options);
    test::finish(future);
  }
  void end() const {
    meron_future future{};
    CALL(meron_reduce_finish_begin, &future, unit, nullptr);
    test::finish(future);
  }
  // A micro-batch of equal values, and its end. No future is kept.
  void give_away(float value, bool boundary) const {
    const std::vector<float> values(kSize, value);
    const meron_source source{param, values.data(), values.size(), MERON_F32, 0};
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.boundary = boundary ? 1 : 0;
    CALL(meron_reduce_begin, nullptr, unit, &source, 1, &options);
  }
  void end_away() const { CALL(meron_reduce_finish_begin, nullptr, unit, nullptr); }
  bool reduced_to(float value) const {
    meron_view view{};
    CALL(meron_reduced_view, &view, param);
    bool right = view.count > 0;
    for (uint64_t i = 0; i < view.count; ++i) {
      right = right && static_cast<float*>(view.data)[i] == value;
    }
    return right;
  }
};

// In one world per plan and transport, each with a flag that its ranks share.
inline void in_every_world(int ranks,
                           const std::function<bool(meron_context context, const std::string& plan,
                                                    int rank, std::atomic<int>& flag)>& body) {
  for (const char* plan : {"zero0", "zero1", "zero2", "zero3"}) {
    for (const char* transport : {"local", "shm", "sockets"}) {
      SCOPED_TRACE(std::string(plan) + " " + transport);
      Shared<int> right(static_cast<size_t>(ranks));
      Shared<std::atomic<int>> flag(1);
      ASSERT_TRUE(run_world({transport, ranks, plan}, [&](int rank, meron_context context) {
        right[static_cast<size_t>(rank)] = body(context, plan, rank, flag[0]) ? 1 : 0;
      }));
      for (size_t rank = 0; rank < right.size(); ++rank) {
        EXPECT_EQ(1, right[rank]) << "rank " << rank;
      }
    }
  }
}

inline void on_every_plan(
    const std::function<bool(const Session&, const std::string& plan, int rank)>& body) {
  in_every_world(kRanks, [&](meron_context context, const std::string& plan, int rank, auto&) {
    return body(Session(context), plan, rank);
  });
}

inline bool whole_gradients(const std::string& plan) {
  return plan == "zero0" || plan == "zero1";
}

}  // namespace meron::test
