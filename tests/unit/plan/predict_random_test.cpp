// SPDX-License-Identifier: Apache-2.0
// Predictions of random models and plans, against their definitions and against each other.
#include <gtest/gtest.h>

#include <random>

#include "enumerate.h"
#include "predict_model.h"

namespace meron {
namespace {

class RandomModels : public testing::Test {
 protected:
  uint64_t pick(uint64_t below) { return random_() % below; }

  ModelDesc model() {
    ModelDesc out;
    for (uint64_t units = pick(6); units > 0; --units) {
      UnitDesc unit{"u", {}};
      for (uint64_t flats = pick(4); flats > 0; --flats) {
        const uint64_t bits = pick(24);
        unit.flats.push_back(
            {static_cast<DType>(pick(3)), pick(uint64_t{2} << bits), pick(4) != 0});
      }
      out.units.push_back(std::move(unit));
    }
    return out;
  }

  Plan plan() {
    Plan out = *preset(kPresetNames[pick(4)]);
    if (is_sharded(out.optimizer) && pick(3) == 0) out.param.sharding = Sharding::shard;
    if (pick(2) == 0) out.gradient.dtype = static_cast<DType>(pick(3));
    out.gradient.rounds = !out.gradient.dtype && pick(4) == 0;
    out.gradient.buckets = static_cast<uint32_t>(1 + pick(4));
    return out;
  }

  std::mt19937_64 random_{3};
};

TEST_F(RandomModels, EqualTheDefinitionsRankByRank) {
  for (int round = 0; round < 3000; ++round) {
    const ModelDesc model = this->model();
    const Plan plan = this->plan();
    const Workload load{static_cast<uint32_t>(1 + pick(9)), static_cast<uint32_t>(1 + pick(4)),
                        static_cast<uint32_t>(1 + pick(3))};
    const Result<Prediction> got = predict(plan, model, load);
    ASSERT_TRUE(got.ok());
    ASSERT_EQ(got->ranks.size(), load.ranks);
    test::Enumerator counted(plan, load, load.ranks);
    uint64_t peak = 0, total = 0, reduce = 0, mapped = 0;
    for (uint32_t r = 0; r < load.ranks; ++r) {
      ASSERT_EQ(got->ranks[r], counted.of(model, r)) << to_json(*got);
      peak = std::max(peak, got->ranks[r].memory.total());
      total += got->ranks[r].memory.total();
      reduce += got->ranks[r].links.reduce;
      mapped += got->ranks[r].links.gather_mapped;
    }
    EXPECT_EQ(got->peak_host, peak);
    EXPECT_EQ(got->total.memory.total(), total);
    EXPECT_EQ(got->total.links.reduce, reduce);
    EXPECT_EQ(got->total.links.gather_mapped, mapped);
  }
}

TEST_F(RandomModels, ShardsCoverEveryElement) {
  for (int round = 0; round < 2000; ++round) {
    const ModelDesc model = this->model();
    const auto ranks = static_cast<uint32_t>(1 + pick(70));
    uint64_t bytes = 0;
    for (const UnitDesc& unit : model.units) {
      for (const FlatDesc& flat : unit.flats) {
        bytes += flat.elements * size_of(flat.dtype);
        uint64_t own = 0;
        for (uint32_t r = 0; r < ranks; ++r) {
          const Range range = shard_range(flat.elements, r, ranks);
          EXPECT_EQ(range.begin, own);
          own += range.size();
        }
        EXPECT_EQ(own, flat.elements);
      }
    }
    const Result<Prediction> zero3 = predict(*preset("zero3"), model, {.ranks = ranks});
    ASSERT_TRUE(zero3.ok());
    EXPECT_EQ(zero3->total.memory.param, bytes);
    // Each byte is missing on all ranks but one.
    EXPECT_EQ(zero3->total.links.gather_mapped, 2 * (ranks - 1) * bytes);
  }
}

TEST_F(RandomModels, MoreRanksNeverNeedMoreAndMoreElementsNeverLess) {
  for (int round = 0; round < 300; ++round) {
    const Plan plan = this->plan();
    ModelDesc model = this->model();
    uint64_t before = UINT64_MAX;
    for (uint32_t ranks = 1; ranks <= 12; ++ranks) {
      const Result<Prediction> got = predict(plan, model, {.ranks = ranks});
      ASSERT_TRUE(got.ok());
      // The first rank owns the most.
      EXPECT_EQ(got->peak_host, got->ranks[0].memory.total());
      EXPECT_LE(got->peak_host, before);
      before = got->peak_host;
    }
    const auto ranks = static_cast<uint32_t>(1 + pick(6));
    const uint64_t small = predict(plan, model, {.ranks = ranks})->peak_host;
    for (UnitDesc& unit : model.units) {
      for (FlatDesc& flat : unit.flats) flat.elements += pick(5000);
    }
    EXPECT_GE(predict(plan, model, {.ranks = ranks})->peak_host, small);
  }
}

TEST_F(RandomModels, ShardingAKindNeverMakesItLarger) {
  for (int round = 0; round < 300; ++round) {
    const ModelDesc model = this->model();
    const Workload load{static_cast<uint32_t>(1 + pick(6))};
    const auto zero0 = ranks_of("zero0", model, load), zero1 = ranks_of("zero1", model, load),
               zero2 = ranks_of("zero2", model, load), zero3 = ranks_of("zero3", model, load);
    for (uint32_t r = 0; r < load.ranks; ++r) {
      EXPECT_LE(zero1[r].memory.optimizer(), zero0[r].memory.optimizer());
      EXPECT_EQ(zero2[r].memory.optimizer(), zero1[r].memory.optimizer());
      EXPECT_LE(zero3[r].memory.param, zero2[r].memory.param);
      EXPECT_LE(zero1[r].links.reduce, zero0[r].links.reduce);
      EXPECT_EQ(zero2[r].links.gather_copied, zero1[r].links.gather_copied);
    }
  }
}

}  // namespace
}  // namespace meron
