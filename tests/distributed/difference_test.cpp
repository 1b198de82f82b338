// SPDX-License-Identifier: Apache-2.0
// Values that travel as how they differ from what the receivers hold: errors do not add up, and
// are those of the difference. (That all ranks and transports get the same bits: codec_test.cpp.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/distributed/one_param.h"
#include "tests/distributed/tiny_model.h"

namespace meron::test {
namespace {

constexpr size_t kCount = 5000;
constexpr size_t kPart = 2560;  // of the first of two ranks
constexpr int kSteps = 40;

std::vector<float> random_values(uint64_t seed) {
  std::vector<float> values(kCount);
  for (float& value : values) value = random_float(seed);
  return values;
}

struct Way {
  const char* name;
  const char* transport;
  const char* mesh;  // and shardings of the plan, for two ranks that are replicas
};

constexpr const char* kCopies = R"j("preset": "hpz(1)")j";
constexpr const char* kRows =
    R"j("preset": "mics(1)", "optimizer": {"sharding": "replica x shard"})j";

// Secondary partitions, and shards that replicas hold alike; on one node, and on two.
const Way kWays[] = {{"copies_shm", "shm", kCopies},
                     {"copies_cluster", "cluster", kCopies},
                     {"rows_shm", "shm", kRows},
                     {"rows_sockets", "sockets", kRows}};

World world_of(const Way& way, const std::string& codec) {
  World world{way.transport, 2,
              std::string("{") + way.mesh + R"(, "param": {"codec": {)" + codec + "}}}"};
  world.node = 1;
  return world;
}

struct Model {
  OneParam one;
  meron_optimizer optimizer{};

  explicit Model(meron_context context) : one(context, kCount) {
    one.write(random_values(1));
    meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    options.learning_rate = 1e-3;
    CALL(meron_optimizer_create, &optimizer, &one.unit, 1, &options);
  }
  void step(uint64_t number) const { one.reduce_and_step(optimizer, random_values(number + 100)); }
  // The exact values of this rank's part.
  std::vector<float> exact(size_t* first) const {
    meron_view view{};
    CALL(meron_optimizer_state_view, &view, optimizer, one.param, MERON_OPTIMIZER_STATE_MASTER);
    *first = view.offset;
    const auto* data = static_cast<const float*>(view.data);
    return {data, data + view.count};
  }
  float worst_error(const std::vector<float>& seen) const {
    size_t first = 0;
    const std::vector<float> values = exact(&first);
    float worst = 0.0f;
    for (size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::fabs(seen[first + i] - values[i]));
    }
    return worst;
  }
  // Each block is off by half a step of what there was to say about it.
  void expect_bound(const std::vector<float>& before, const std::vector<float>& seen,
                    float levels) const {
    size_t first = 0;
    const std::vector<float> values = exact(&first);
    for (size_t block = 0; block < values.size(); block += 256) {
      const size_t end = std::min(block + 256, values.size());
      float largest = 0.0f;
      for (size_t i = block; i < end; ++i) {
        largest = std::max(largest, std::fabs(values[i] - before[first + i]));
      }
      for (size_t i = block; i < end; ++i) {
        require(std::fabs(seen[first + i] - values[i]) <= largest / (2 * levels) * 1.001f + 2e-7f,
                "a value is within half a step of its block's difference");
      }
    }
  }
};

class Difference : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, Difference, testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

// The largest error of both ranks after all steps.
float error_after_training(const World& world, float levels) {
  Shared<float> errors(2);
  const bool well = run_world(world, [&](int rank, meron_context context) {
    const Model model(context);
    std::vector<float> before = model.one.gather();
    for (int step = 0; step < kSteps; ++step) {
      model.step(static_cast<uint64_t>(step));
      const std::vector<float> seen = model.one.gather();
      if (levels > 0.0f) model.expect_bound(before, seen, levels);
      before = seen;
    }
    errors[static_cast<size_t>(rank)] = model.worst_error(before);
  });
  EXPECT_TRUE(well);
  return std::max(errors[0], errors[1]);
}

TEST_P(Difference, ErrorsDoNotAddUp) {
  for (const auto& [kind, levels] : {std::pair{"int8", 127.0f}, std::pair{"int4", 7.0f}}) {
    SCOPED_TRACE(kind);
    const std::string codec = std::string(R"("kind": ")") + kind + '"';
    const float whole = error_after_training(world_of(GetParam(), codec), 0.0f);
    const float difference =
        error_after_training(world_of(GetParam(), codec + R"(, "difference": true)"), levels);
    EXPECT_GT(difference, 0.0f);
    EXPECT_LT(difference * 200.0f, whole);
  }
}

// A difference is of no use to a rank that does not hold the last version.
TEST_P(Difference, IsNotUsedForAVersionThatNoRankGathered) {
  const World world = world_of(GetParam(), R"("kind": "int8", "difference": true)");
  Shared<float> seen(2 * kCount);
  EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
    const Model model(context);
    (void)model.one.gather();
    for (uint64_t step = 0; step < 3; ++step) model.step(step);
    const std::vector<float> values = model.one.gather();
    size_t first = 0;
    const std::vector<float> exact = model.exact(&first);
    for (size_t i = 0; i < exact.size(); ++i) {
      require(std::fabs(values[first + i] - exact[i]) <= std::fabs(exact[i]) / 256.0f,
              "16 bits of it travel");
    }
    model.step(3);
    const std::vector<float> next = model.one.gather();
    model.expect_bound(values, next, 127.0f);
    std::copy(next.begin(), next.end(), seen.data() + static_cast<size_t>(rank) * kCount);
  }));
  EXPECT_EQ(0, std::memcmp(seen.data(), seen.data() + kCount, kCount * sizeof(float)));
}

// A cancelled gather has begun to send differences, which are not sent again.
TEST_P(Difference, ArrivesAfterACancelledGather) {
  const World world = world_of(GetParam(), R"("kind": "int8", "difference": true)");
  Shared<float> seen(4 * kCount);
  for (const bool given_up : {false, true}) {
    EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
      const Model model(context);
      for (uint64_t step = 0; step < 10; ++step) {
        meron_future gather{};
        CALL(meron_gather_begin, &gather, &model.one.unit, 1, nullptr);
        if (!given_up) CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
        CALL(meron_future_release, gather);
        model.step(step);
      }
      const std::vector<float> last = model.one.gather();
      const size_t place = static_cast<size_t>(2 * rank + (given_up ? 1 : 0));
      std::copy(last.begin(), last.end(), seen.data() + place * kCount);
    }));
  }
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(0, std::memcmp(seen.data(), seen.data() + i * kCount, kCount * sizeof(float))) << i;
  }
}

// Trainers with an optimizer of their own write values.
TEST_P(Difference, IsOfWrittenValuesToo) {
  const World world = world_of(GetParam(), R"("kind": "int8", "difference": true)");
  EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
    const OneParam one(context, kCount);
    std::vector<float> values = random_values(1);
    one.write(values);
    const std::vector<float> before = one.gather();
    for (size_t i = 0; i < kCount; ++i) {
      require(std::fabs(before[i] - values[i]) <= std::fabs(values[i]) / 256.0f, "first 16 bits");
    }
    for (int round = 0; round < 4; ++round) {
      for (float& value : values) value += 1e-3f;
      one.write(values);
      (void)one.gather();
    }
    const std::vector<float> seen = one.gather();
    for (size_t i = 0; i < kCount; ++i) {
      require(std::fabs(seen[i] - values[i]) <= 1e-5f, "then what was added");
    }
    require(one.info().param_error < 1e-5, "the error told is one of the values");
  }));
}

TEST_P(Difference, StartsAnewAfterNonFiniteValues) {
  const World world = world_of(GetParam(), R"("kind": "int8", "difference": true)");
  EXPECT_TRUE(run_world(world, [&](int, meron_context context) {
    const OneParam one(context, kCount);
    const std::vector<float> values = random_values(1);
    one.write(values);
    (void)one.gather();
    std::vector<float> broken = values;
    broken[3] = std::numeric_limits<float>::quiet_NaN();
    broken[kPart] = std::numeric_limits<float>::infinity();
    for (int round = 0; round < 2; ++round) {
      one.write(broken);
      const std::vector<float> seen = one.gather();
      require(!std::isfinite(seen[3]) && !std::isfinite(seen[kPart]), "it stays none");
    }
    one.write(values);
    const std::vector<float> whole = one.gather();
    for (size_t i = 0; i < kCount; ++i) {
      require(std::fabs(whole[i] - values[i]) <= std::fabs(values[i]) / 256.0f, "in 16 bits");
    }
    one.write(values);
    const std::vector<float> seen = one.gather();
    for (size_t i = 0; i < kCount; ++i) {
      require(std::fabs(seen[i] - values[i]) <= 4e-5f, "and then as differences again");
    }
  }));
}

TEST_P(Difference, GoesBackToSixteenBitsAboveTheLimit) {
  const auto last_codec = [&](const char* limit) {
    Shared<int> codecs(2);
    const World world = world_of(
        GetParam(), std::string(R"("kind": "int4", "difference": true, "error_limit": )") + limit);
    EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
      const Model model(context);
      for (uint64_t step = 0; step < 4; ++step) {
        (void)model.one.gather();
        model.step(step);
      }
      (void)model.one.gather();
      codecs[static_cast<size_t>(rank)] = model.one.info().param_codec;
    }));
    EXPECT_EQ(codecs[0], codecs[1]);
    return codecs[0];
  };
  EXPECT_EQ(last_codec("0.001"), MERON_CODEC_INT4);  // 0.1 of full values in int4
  EXPECT_EQ(last_codec("1e-7"), MERON_CODEC_BF16);
}

}  // namespace
}  // namespace meron::test
