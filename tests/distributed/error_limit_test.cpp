// SPDX-License-Identifier: Apache-2.0
// The fallback of a codec to bf16 above its `error_limit`: all ranks fall back at the same version
// or exchange, however far one is ahead of another.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "tests/distributed/one_param.h"

namespace meron::test {
namespace {

constexpr size_t kCount = 4096;
constexpr size_t kShard = kCount / 2;  // of two ranks on the shard axis

// A ramp in each block: int8 loses far more of it than the limit allows.
float rough(size_t i) {
  return 1.0f + static_cast<float>(i % 256) / 256.0f;
}
std::vector<float> rough_values() {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = rough(i);
  return values;
}
// Blocks of one value each: int8 is exact.
const std::vector<float> kSmooth(kCount, 127.0f);

// How far ranks are, in memory that they share.
class Progress {
 public:
  Progress() : done_(1) {}
  void advance_to(int step) { done_[0] = step; }
  void await(int step) {
    while (done_[0].load() < step) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void count() { ++done_[0]; }

 private:
  Shared<std::atomic<int>> done_;
};

meron_future begin_reduce(const OneParam& one, const std::vector<float>& gradient, bool boundary) {
  const meron_source source{one.param, gradient.data(), gradient.size(), MERON_F32, 0};
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.boundary = boundary ? 1 : 0;
  meron_future future{};
  CALL(meron_reduce_begin, &future, one.unit, &source, 1, &options);
  return future;
}

// The largest relative error of the rank's part of the sum.
double largest_error(const OneParam& one, const std::vector<float>& expected) {
  meron_view view{};
  CALL(meron_reduced_view, &view, one.param);
  require(view.count > 0, "the rank has a part of the sum");
  double largest = 0.0;
  for (uint64_t i = 0; i < view.count; ++i) {
    const double right = expected[view.offset + i];
    largest = std::max(largest, std::fabs(static_cast<const float*>(view.data)[i] / right - 1.0));
  }
  return largest;
}

// The first exchange is the first above the limit: both ranks encode it in int8, also the one that
// begins after its peer has announced its error. Both encode the second in bf16.
TEST(ErrorLimitOfGradients, TakesEffectInTheExchangeAfter) {
  const char* const plans[] = {
      R"j({"mesh": {"shard": 1}, "optimizer": {"sharding": "shard"},
           "gradient": {"codec": {"kind": "int8", "error_limit": 1e-5}}})j",
      R"j({"preset": "hpz(1)", "gradient": {"codec": {"kind": "int8", "error_limit": 1e-5}}})j",
  };
  const std::vector<float> gradient = rough_values();
  for (const char* plan : plans) {
    for (const char* transport : {"local", "shm", "sockets"}) {
      SCOPED_TRACE(std::string(transport) + " " + plan);
      Progress progress;
      EXPECT_TRUE(run_world({transport, 2, plan}, [&](int rank, meron_context context) {
        const OneParam one(context, kCount);
        for (int exchange = 1; exchange <= 3; ++exchange) {
          // The ranks take turns in being late.
          const bool late = rank == exchange % 2;
          if (late) progress.await(exchange);
          const meron_future reduced = begin_reduce(one, gradient, true);
          if (!late) progress.advance_to(exchange);
          finish(reduced);
          const meron_unit_info info = one.info();
          const double error = largest_error(one, gradient);
          CALL(meron_reduce_discard, one.unit);
          if (exchange == 1) {
            require(info.gradient_codec == MERON_CODEC_INT8, "the first exchange is in int8");
            require(info.gradient_error > 1e-5, "its error is above the limit");
            require(error < 0.02, "within the bound of int8");
          } else {
            require(info.gradient_codec == MERON_CODEC_BF16, "later ones are in bf16");
            require(error < 0.01, "within the bound of bf16");
          }
        }
      }));
    }
  }
}

// The end of an accumulation has no step along the shard axis. A rank that is ahead still learns
// the errors of the other shards before it encodes.
TEST(ErrorLimitOfGradients, HoldsForAnEndThatFollowsAnEnd) {
  constexpr const char* kPlan =
      R"j({"preset": "mics(2)", "gradient": {"codec": {"kind": "int8", "error_limit": 1e-5}}})j";
  // The first shard is exact in int8, the second is not.
  std::vector<float> gradient = kSmooth;
  for (size_t i = kShard; i < kCount; ++i) gradient[i] = rough(i);
  for (const char* transport : {"local", "shm", "cluster"}) {
    SCOPED_TRACE(transport);
    World world{.transport = transport, .ranks = 4, .plan = kPlan};
    world.node = 2;
    // Ranks 0 and 2 have the first shard, 1 and 3 the second.
    Progress ahead, second_shard;
    EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
      const OneParam one(context, kCount);
      finish(begin_reduce(one, gradient, false));
      const auto begin_end = [&] {
        meron_future ended{};
        CALL(meron_reduce_finish_begin, &ended, one.unit, nullptr);
        return ended;
      };
      // Over nodes an exchange ends on no rank before all have begun it.
      const bool local = std::strcmp(transport, "cluster") != 0;
      if (rank % 2 == 1 && local) ahead.await(1);
      finish(begin_end());
      if (rank % 2 == 1) second_shard.count();
      CALL(meron_reduce_discard, one.unit);
      // Rank 2 begins the second end after the second shard's ranks have announced their errors.
      if (rank == 2) second_shard.await(2);
      const meron_future ended = begin_end();
      if (rank == 0) ahead.advance_to(1);
      finish(ended);
      require(one.info().gradient_codec == MERON_CODEC_BF16, "the second end is in bf16");
      CALL(meron_reduce_discard, one.unit);
      finish(begin_reduce(one, gradient, true));
      require(largest_error(one, gradient) < 0.01, "the next gradient is right");
    }));
  }
}

// Versions that are not gathered may be two ahead of a rank that is still writing the first of
// them: it goes by the errors of the version that all have gathered.
TEST(ErrorLimitOfValues, GoesByTheVersionThatWasGathered) {
  constexpr const char* kPlan =
      R"j({"preset": "mics(2)", "optimizer": {"sharding": "replica x shard"},
           "param": {"codec": {"kind": "int8", "error_limit": 1e-5}}})j";
  const std::vector<float> values = rough_values();
  for (const char* transport : {"local", "shm"}) {
    SCOPED_TRACE(transport);
    Progress two_ahead;
    EXPECT_TRUE(run_world({transport, 4, kPlan}, [&](int rank, meron_context context) {
      const OneParam one(context, kCount);
      one.write(kSmooth);
      require(one.gather() == kSmooth, "exact in int8");
      // Rank 3 reads nothing of rank 0, nor rank 0 of it: it does not wait for rank 0's second
      // version.
      meron_future update{};
      CALL(meron_update_begin, &update, &one.unit, 1);
      CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
      if (rank == 0) two_ahead.await(1);
      CALL(meron_update_write, update, one.param, kSmooth.data(), kCount, MERON_F32);
      CALL(meron_update_publish, update);
      one.write(values);
      if (rank == 3) two_ahead.advance_to(1);
      require(one.info().param_codec == MERON_CODEC_INT8,
              "no gathered version was above the limit");
      const std::vector<float> seen = one.gather();
      for (size_t i = 0; i < kCount; ++i) {
        require(std::fabs(seen[i] - values[i]) < 0.02f, "within the bound of int8");
      }
      one.write(values);
      (void)one.gather();
      require(one.info().param_codec == MERON_CODEC_BF16, "the version that was gathered is");
    }));
  }
}

}  // namespace
}  // namespace meron::test
