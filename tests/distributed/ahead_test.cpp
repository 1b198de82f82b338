// SPDX-License-Identifier: Apache-2.0
// A rank that is ahead must not disturb one that is behind.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "ranks.h"

namespace meron::test {
namespace {

void pause_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Rank 0 contributes and is then slow to sum. Rank 1 has ended the same reduction long before, and
// fills the bucket of the next micro-batch meanwhile: rank 0 must still read the old one.
TEST(Ahead, ANextGradientDoesNotReplaceTheOneThatIsBeingReduced) {
  for (const char* plan : {"zero0", "zero1", "zero2", "zero3"}) {
    for (const char* transport : {"local", "shm"}) {
      SCOPED_TRACE(std::string(plan) + " " + transport);
      Shared<int> good(2);
      ASSERT_TRUE(run_world({transport, 2, plan}, [&](int rank, meron_context context) {
        const int64_t size = 2000;
        meron_param_desc desc = MERON_PARAM_DESC_INIT;
        desc.name = "w";
        desc.shape = &size;
        desc.dims = 1;
        meron_param param{};
        CALL(meron_param_register, &param, context, &desc);
        meron_unit unit{};
        CALL(meron_unit_create, &unit, context, "u", &param, 1);
        const auto fill = [&](float value) {
          meron_view view{};
          CALL(meron_gradient_view, &view, param, MERON_GRADIENT_OVERWRITE);
          for (uint64_t i = 0; i < view.count; ++i) static_cast<float*>(view.data)[i] = value;
        };
        bool right = true;
        const auto expect_sum = [&](float value) {
          meron_view view{};
          CALL(meron_reduced_view, &view, param);
          for (uint64_t i = 0; i < view.count; ++i) {
            right = right && static_cast<float*>(view.data)[i] == value;
          }
          CALL(meron_reduce_discard, unit);
        };
        meron_reduce_options sum = MERON_REDUCE_OPTIONS_INIT;
        sum.op = MERON_REDUCE_OP_SUM;
        for (int round = 0; round < 3; ++round) {
          fill(static_cast<float>(1 + rank + 10 * round));
          if (rank == 1) pause_ms(20);  // so that rank 0 cannot sum when it begins
          meron_future future{};
          CALL(meron_reduce_begin, &future, unit, nullptr, 0, &sum);
          if (rank == 0) pause_ms(60);
          finish(future);
          expect_sum(static_cast<float>(3 + 20 * round));
        }
        good[static_cast<size_t>(rank)] = right ? 1 : 0;
      }));
      EXPECT_EQ(1, good[0]);
      EXPECT_EQ(1, good[1]);
    }
  }
}

}  // namespace
}  // namespace meron::test
