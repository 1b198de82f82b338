// SPDX-License-Identifier: Apache-2.0
// Micro-batches of 16-bit params: they are added in f32 under every plan, and one micro-batch costs
// no more than its 16 bits. (Bits and bytes of whole runs are the twin test's.)
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/distributed/trainer.h"
#include "tests/unit/os/child_process.h"

namespace meron::test {
namespace {

constexpr const char* kRounding = R"({"preset": "zero1", "gradient": {"dtype": "param"}})";

bool full_gradients(const std::string& plan) {
  return plan == "zero0" || plan == "zero1";
}

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::fflush(stderr);
  _exit(4);
}

float bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

// A unit of one param of bf16 or f16.
struct Narrow {
  meron_context context;
  int64_t count;
  meron_param param{};
  meron_unit unit{};

  Narrow(meron_context context_in, int64_t count_in, meron_dtype dtype = MERON_BF16)
      : context(context_in), count(count_in) {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = "p";
    desc.shape = &count;
    desc.dims = 1;
    desc.dtype = dtype;
    CALL(meron_param_register, &param, context, &desc);
    CALL(meron_unit_create, &unit, context, "u", &param, 1);
  }
  meron_status try_add(const std::vector<float>& gradient, meron_error** error) const {
    const meron_source source{param, gradient.data(), gradient.size(), MERON_F32, 0};
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.boundary = 0;
    const meron_status status = meron_reduce_begin(nullptr, unit, &source, 1, &options, error);
    if (status == MERON_OK) CALL(meron_reduce_wait, &unit, 1, MERON_TIMEOUT_DEFAULT);
    return status;
  }
  void add(const std::vector<float>& gradient) const {
    meron_error* error = nullptr;
    check(try_add(gradient, &error), error, "meron_reduce_begin");
  }
  // The sum over ranks of what they have added: of the part that this rank owns.
  std::vector<float> end(double divisor = 1.0) const {
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.op = MERON_REDUCE_OP_SUM;
    options.divisor = divisor;
    CALL(meron_reduce_finish_begin, nullptr, unit, &options);
    CALL(meron_reduce_wait, &unit, 1, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_reduced_view, &view, param);
    const auto* data = static_cast<const float*>(view.data);
    std::vector<float> out(data, data + view.count);
    begin_ = view.offset;
    CALL(meron_reduce_discard, unit);
    return out;
  }
  uint64_t begin() const { return begin_; }  // of the part, in the param

 private:
  mutable uint64_t begin_ = 0;
};

float gradient_at(int micro_batch, int64_t i) {
  return 0.01f *
         (1.0f + 0.1f * static_cast<float>((micro_batch * 7919 + i * 104729) % 1009) / 1009);
}

std::vector<float> gradient(int micro_batch, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = gradient_at(micro_batch, i);
  return out;
}

class EveryPlan : public testing::TestWithParam<const char*> {};

// Low noise is the worst case: in 16 bits the sum of 512 stalls.
TEST_P(EveryPlan, AMeanOfManyMicroBatchesIsExactToF32) {
  for (const int ranks : {1, 2}) {
    for (const int total : {8, 64, 512}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(total));
      World world;
      world.plan = GetParam();
      world.ranks = ranks;
      world.transport = ranks == 1 ? "self" : "shm";
      EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
        const Narrow model(context, 1500);
        for (int k = rank; k < total; k += ranks) model.add(gradient(k, model.count));
        const std::vector<float> mean = model.end(total);
        double error = 0, norm = 0;
        for (size_t i = 0; i < mean.size(); ++i) {
          double exact = 0;
          for (int k = 0; k < total; ++k) {
            exact += bf16(gradient_at(k, static_cast<int64_t>(model.begin() + i)));
          }
          exact /= total;
          error += (mean[i] - exact) * (mean[i] - exact);
          norm += exact * exact;
        }
        require(std::sqrt(error) <= 1e-7 * std::sqrt(norm), "the error is at most 1e-7");
      }));
    }
  }
}

TEST_P(EveryPlan, FourTimesTheLargestHalfIsNotInfinite) {
  World world;
  world.plan = GetParam();
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    const Narrow model(context, 1500, MERON_F16);
    for (int k = 0; k < 4; ++k) model.add(std::vector<float>(1500, 65504.0f));
    for (const float mean : model.end(8)) require(mean == 65504.0f, "it is their mean");
  }));
}

// In the dtype of sums, whatever the sizes are: of one block, and of what takes several threads.
TEST_P(EveryPlan, EverySizeIsAddedUp) {
  for (const int64_t count : {1, 31, 256, 257, 1000, 4099, 70'001, 1'200'003}) {
    SCOPED_TRACE(count);
    World world;
    world.plan = GetParam();
    EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
      const Narrow model(context, count);
      for (int step = 0; step < 3; ++step) {
        for (int k = 0; k < 3; ++k) model.add(gradient(3 * step + k, count));
        const std::vector<float> sum = model.end();
        for (size_t i = 0; i < sum.size(); ++i) {
          float one = 0;
          for (int k = 0; k < 3; ++k) {
            one += bf16(gradient_at(3 * step + k, static_cast<int64_t>(model.begin() + i)));
          }
          require(std::abs(sum[i] - 2 * one) <= 1e-6f, "each element is the sum");
        }
      }
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EveryPlan, testing::Values("zero0", "zero1", "zero2", "zero3"),
                         [](const auto& info) { return std::string(info.param); });

class FullGradients
    : public testing::TestWithParam<std::tuple<const char*, const char*>> {  // plan, transport
 protected:
  World world(int ranks) const {
    World out{std::get<1>(GetParam()), ranks, std::get<0>(GetParam())};
    out.node = 2;
    return out;
  }
};

// Without communication until the end, so ranks may add up different numbers of micro-batches.
TEST_P(FullGradients, RanksMayAddDifferentNumbersOfMicroBatches) {
  EXPECT_TRUE(run_world(world(3), [](int rank, meron_context context) {
    const Narrow model(context, 5000);
    const int numbers[4][3] = {{3, 1, 0}, {0, 1, 2}, {1, 1, 1}, {1, 4, 1}};
    for (const auto& given : numbers) {
      for (int k = 0; k < given[rank]; ++k) model.add(gradient(10 * rank + k, model.count));
      const std::vector<float> sum = model.end();
      for (size_t i = 0; i < sum.size(); ++i) {
        float expected = 0;
        for (int r = 0; r < 3; ++r) {
          float own = 0;
          for (int k = 0; k < given[r]; ++k) {
            const float value =
                bf16(gradient_at(10 * r + k, static_cast<int64_t>(model.begin() + i)));
            own = k == 0 ? value : own + value;
          }
          expected = r == 0 ? own : expected + own;
        }
        require(sum[i] == expected, "the bits are those of sums in f32, rank by rank");
      }
    }
  }));
}

// Ranks read 16 bits of each element after one micro-batch, also if earlier accumulations had more.
TEST_P(FullGradients, OneMicroBatchMovesSixteenBits) {
  EXPECT_TRUE(run_world(world(2), [](int, meron_context context) {
    const Narrow model(context, 4096);
    const auto bytes = [&](int micro_batches) {
      const uint64_t before = stats_of(context).reduce_bytes;
      for (int k = 0; k < micro_batches; ++k) model.add(gradient(k, model.count));
      (void)model.end();
      return stats_of(context).reduce_bytes - before;
    };
    const uint64_t one = bytes(1);
    require(bytes(3) == one + 2048 * 2, "two bytes more of each element after several");
    require(bytes(1) == one, "and not afterwards");
  }));
}

INSTANTIATE_TEST_SUITE_P(Worlds, FullGradients,
                         testing::Combine(testing::Values("zero0", "zero1"),
                                          testing::Values("local", "shm", "sockets", "cluster")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

TEST(Accumulation, ReplicasOfFullGradientsAddMicroBatchesInF32) {
  for (const char* table :
       {R"({"mesh": {"shard": 2}, "optimizer": {"sharding": "shard"}})",
        R"({"mesh": {"shard": 2}, "optimizer": {"sharding": "replica x shard"}})",
        R"({"mesh": {"shard": 1}, "optimizer": {"sharding": "replica x shard"}})"}) {
    for (const char* transport : {"shm", "cluster"}) {
      SCOPED_TRACE(std::string(table) + " " + transport);
      World world{transport, 4, table};
      world.node = 2;
      EXPECT_TRUE(run_world(world, [](int rank, meron_context context) {
        const Narrow model(context, 5000);
        const int numbers[3][4] = {{2, 2, 2, 2}, {3, 1, 0, 2}, {1, 1, 1, 1}};
        for (const auto& given : numbers) {
          for (int k = 0; k < given[rank]; ++k) model.add(gradient(10 * rank + k, model.count));
          const std::vector<float> sum = model.end();
          for (size_t i = 0; i < sum.size(); ++i) {
            double exact = 0;
            for (int r = 0; r < 4; ++r) {
              for (int k = 0; k < given[r]; ++k) {
                exact += bf16(gradient_at(10 * r + k, static_cast<int64_t>(model.begin() + i)));
              }
            }
            require(std::abs(sum[i] - exact) <= 3e-7 * exact, "the sum is exact to f32");
          }
        }
      }));
    }
  }
}

// The second micro-batch makes the bucket grow, or, under zero0, uses the memory of the sums.
TEST(Accumulation, TheFirstMicroBatchTakesNoMemoryForOthers) {
  for (const char* plan : {"zero0", "zero1"}) {
    SCOPED_TRACE(plan);
    World world;
    world.plan = plan;
    EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
      const Narrow model(context, 1 << 20);
      const auto held = [&] { return stats_of(context).gradient_bytes; };
      const uint64_t made = held();
      model.add(gradient(0, model.count));
      require(held() == made, "the first takes no more");
      model.add(gradient(1, model.count));
      const uint64_t more = std::string(plan) == "zero1" ? 2ull << 20 : 0;
      require(held() == made + more, "the second takes two bytes an element");
      model.add(gradient(2, model.count));
      (void)model.end();
      model.add(gradient(3, model.count));
      require(held() == made + more, "further ones take no more");
      (void)model.end();
    }));
  }
}

TEST(Accumulation, AViewHasTheSumSoFarInItsDType) {
  for (const char* plan : {"zero0", "zero1", kRounding}) {
    SCOPED_TRACE(plan);
    const bool wide = full_gradients(plan);
    World world;
    world.plan = plan;
    EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
      const Narrow model(context, 3000);
      meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
      options.boundary = 0;
      for (int step = 0; step < 2; ++step) {
        for (int k = 0; k < 3; ++k) {
          meron_view view{};
          CALL(meron_gradient_view, &view, model.param, 0);
          require(view.dtype == (wide && k > 0 ? MERON_F32 : MERON_BF16), "the dtype is told");
          for (uint64_t i = 0; i < view.count; ++i) {
            if (view.dtype == MERON_F32) {
              auto& value = static_cast<float*>(view.data)[i];
              require(value == static_cast<float>(256 + k - 1), "it has the sum so far");
              value += 1.0f;
            } else {
              static_cast<uint16_t*>(view.data)[i] = 0x4380;  // 256, to which 1 adds nothing
            }
          }
          CALL(meron_reduce_begin, nullptr, model.unit, nullptr, 0, &options);
        }
        for (const float sum : model.end()) {
          require(sum == 2 * (wide ? 258.0f : 256.0f), "what was written is summed");
        }
      }
    }));
  }
}

TEST(Accumulation, ParamAsTheDTypeAddsInSixteenBits) {
  World world;
  world.plan = kRounding;
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    const Narrow model(context, 1000);
    model.add(std::vector<float>(1000, 256.0f));
    model.add(std::vector<float>(1000, 1.0f));
    for (const float sum : model.end()) require(sum == 512.0f, "256 + 1 is 256 in bf16");
  }));
}

TEST(Accumulation, ARefusalOfMemoryLosesNothing) {
  World world;
  world.plan = "zero1";
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    const Narrow model(context, 4 << 20);
    const std::vector<float> ones(4 << 20, 1.0f);
    model.add(ones);
    require(deny_syscall(SYS_madvise, ENOMEM, 23), "MADV_POPULATE_WRITE is denied");
    for (int attempt = 0; attempt < 2; ++attempt) {
      meron_error* error = nullptr;
      require(model.try_add(ones, &error) == MERON_E_NO_MEMORY, "the second is refused");
      const std::string text = meron_error_message(error);
      require(text.find("unit 'u', added up in f32") != std::string::npos, text);
      meron_error_free(error);
    }
    CALL(meron_reduce_begin, nullptr, model.unit, nullptr, 0, nullptr);
    CALL(meron_reduce_wait, &model.unit, 1, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_reduced_view, &view, model.param);
    for (uint64_t i = 0; i < view.count; ++i) {
      require(static_cast<float*>(view.data)[i] == 1.0f, "the first is still there");
    }
  }));
}

// The next accumulation begins at zero, in both dtypes.
TEST(Accumulation, ADiscardedOneLeavesNothing) {
  for (const char* plan : {"zero0", "zero1"}) {
    SCOPED_TRACE(plan);
    World world;
    world.plan = plan;
    EXPECT_TRUE(run_world(world, [](int, meron_context context) {
      const Narrow model(context, 3000);
      for (int given = 1; given < 4; ++given) {
        for (int k = 0; k < given; ++k) model.add(std::vector<float>(3000, 100.0f));
        CALL(meron_reduce_discard, model.unit);
        model.add(std::vector<float>(3000, 3.0f));
        for (const float sum : model.end()) require(sum == 6.0f, "only the last counts");
      }
    }));
  }
}

}  // namespace
}  // namespace meron::test
