// SPDX-License-Identifier: Apache-2.0
#include "plan/state_layout.h"

#include <gtest/gtest.h>

namespace meron {
namespace {

TEST(StateLayout, RecordsHaveEverythingOfAnElementSideBySide) {
  const StateShape shape{.dtype = StateDType::int8, .states = 2, .master = true};
  EXPECT_EQ(shape.state_offset(kRecord, 0), 4 * kRecord);
  EXPECT_EQ(shape.state_offset(kRecord, 1), 5 * kRecord);
  EXPECT_EQ(shape.scale_offset(kRecord, 0), 6 * kRecord);
  EXPECT_EQ(shape.scale_offset(kRecord, 1), 6 * kRecord + 64);
  EXPECT_EQ(shape.bytes(kRecord), 6 * kRecord + 128);
  // The last record of a flat is shorter, and so are its states.
  EXPECT_EQ(shape.bytes(kRecord + 288), 6 * kRecord + 128 + 6 * 288 + 2 * 8);
}

TEST(StateLayout, BytesPerElement) {
  const auto bytes = [](StateDType dtype, uint32_t states, bool master) {
    return StateShape{dtype, states, master}.bytes(64 * kRecord);
  };
  EXPECT_EQ(bytes(StateDType::f32, 2, true), 12 * 64 * kRecord);
  EXPECT_EQ(bytes(StateDType::f32, 2, false), 8 * 64 * kRecord);
  EXPECT_EQ(bytes(StateDType::bf16, 1, true), 6 * 64 * kRecord);
  EXPECT_EQ(bytes(StateDType::f32, 0, false), 0u);
}

// Every element is on one side of a split, which falls between blocks, whatever the fraction.
TEST(StateLayout, SplitsHaveEveryElementOnce) {
  Plan plan;
  const StateShape shape;
  plan.optimizer.tier = Tier::nvme;
  for (const double fraction : {1e-9, 0.1, 0.5, 0.999, 1.0}) {
    plan.optimizer.fraction = fraction;
    for (const uint64_t elements : {0u, 32u, 256u, 288u, 4096u, 100'000u}) {
      const Range owned{512, 512 + elements};
      const StateSplit split = split_states(plan, shape, owned);
      EXPECT_EQ(split.host.begin, owned.begin);
      EXPECT_EQ(split.host.end, split.nvme.begin);
      EXPECT_EQ(split.nvme.end, owned.end);
      EXPECT_EQ(split.host.size() % kBlock, 0u);
      EXPECT_GE(static_cast<double>(split.nvme.size()), fraction * static_cast<double>(elements));
      EXPECT_LE(static_cast<double>(split.nvme.size()),
                fraction * static_cast<double>(elements) + kBlock + 1);
    }
  }
  plan.optimizer.tier = Tier::host;
  EXPECT_EQ(split_states(plan, shape, {0, 1000}).nvme.size(), 0u);
}

// A rule without states has no records, so a pass over the drive would not update its values.
TEST(StateLayout, ElementsWithoutRecordsAreUpdatedOnTheHost) {
  Plan plan;
  plan.optimizer.tier = Tier::nvme;
  const StateShape nothing{.states = 0};
  EXPECT_EQ(split_states(plan, nothing, {0, 1000}).host.size(), 1000u);
  const StateShape master_only{.states = 0, .master = true};
  EXPECT_EQ(split_states(plan, master_only, {0, 1000}).nvme.size(), 1000u);
}

TEST(StateLayout, SubGroupsFillPages) {
  const StateShape shape{.dtype = StateDType::int8, .states = 2, .master = true};
  EXPECT_EQ(sub_group_bytes(shape, kRecord), 7 * kPage);
  EXPECT_EQ(nvme_bytes(shape, 2 * kRecord, 5 * kRecord),
            2 * sub_group_bytes(shape, 2 * kRecord) + sub_group_bytes(shape, kRecord));
  EXPECT_EQ(nvme_bytes(shape, 2 * kRecord, 0), 0u);
  EXPECT_EQ(largest_sub_group(shape, 2 * kRecord, 100), sub_group_bytes(shape, 100));
}

}  // namespace
}  // namespace meron
