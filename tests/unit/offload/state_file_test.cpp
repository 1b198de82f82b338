// SPDX-License-Identifier: Apache-2.0
#include "offload/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "disk.h"

namespace meron {
namespace {

// Content of a record in a round: every byte depends on the record and the round.
void fill(std::byte* record, uint64_t bytes, size_t number, int round) {
  std::mt19937_64 random(number * 1000 + static_cast<size_t>(round));
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(record + i, &word, std::min<uint64_t>(8, bytes - i));
  }
}

bool holds(const std::byte* record, uint64_t bytes, size_t number, int round) {
  std::vector<std::byte> expected(bytes);
  fill(expected.data(), bytes, number, round);
  return std::memcmp(record, expected.data(), bytes) == 0;
}

class StateFileTest : public test::OnDisk {
 protected:
  void make(std::vector<StateFile::Region> regions, uint32_t buffers = 3) {
    Plan plan;
    plan.optimizer.tier = Tier::nvme;
    plan.nvme.path = directory_.path();
    plan.optimizer.sub_group = 2 * kRecord;
    plan.optimizer.buffers = buffers;
    auto storage = Storage::open(plan.nvme.path, {.block = 8192, .depth = 4}, [] {});
    ASSERT_TRUE(storage.ok()) << storage.error().info().what;
    storage_ = std::move(storage).value();
    arena_ = *Arena::create({.reserve = 64 << 20});
    auto file = StateFile::create(*storage_, *arena_, counters_, plan, 60 * kNanosPerSecond,
                                  std::move(regions));
    ASSERT_TRUE(file.ok()) << file.error().info().what;
    file_ = std::move(file).value();
  }

  uint64_t record_bytes(const StateFile::SubGroup& group, uint64_t r) const {
    return file_->region(group).shape.bytes(file_->record_elements(group, r));
  }

  // Visits every sub-group of a round in order, expects the values of round - 1, and writes.
  void go_over(StatePass& pass, int round) {
    while (!pass.handed_out_all()) {
      EXPECT_OK(pass.advance());
      std::byte* const data = pass.front();
      if (data == nullptr) {
        pass.wait(1'000'000);
        continue;
      }
      const StateFile::SubGroup group = pass.sub_group();
      EXPECT_EQ(group.offset, file_->sub_groups()[pass.handed_out()].offset);
      for (uint64_t r = 0; r < group.records(); ++r) {
        std::byte* const record = file_->record(group, r, data);
        if (round > 0) {
          EXPECT_OK(file_->verify(group, r, data));
          EXPECT_TRUE(holds(record, record_bytes(group, r), group.record + r, round - 1));
        }
        fill(record, record_bytes(group, r), group.record + r, round);
        file_->seal(group, r, data);
      }
      pass.pop();
    }
  }

  void fill_all() {
    StatePass filling(*file_, StatePass::Kind::fill);
    go_over(filling, 0);
    while (!filling.idle()) {
      EXPECT_OK(filling.advance());
      filling.wait(1'000'000);
    }
  }

  Counters counters_;
  std::unique_ptr<Storage> storage_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<StateFile> file_;
};
INSTANTIATE_TEST_SUITE_P(Uring, StateFileTest, testing::Values(test::Backend::uring),
                         test::name_of);

const StateShape kWithMaster{.dtype = StateDType::f32, .states = 2, .master = true};
const StateShape kEightBits{.dtype = StateDType::int8, .states = 2, .master = true};

TEST_P(StateFileTest, RoundsReadWhatTheLastOneWrote) {
  // Fewer sub-groups than fit into memory, and many more; of several sizes.
  for (const uint64_t elements : {uint64_t{100 * 32}, 3 * kRecord, 41 * kRecord + 320}) {
    SCOPED_TRACE(elements);
    make(
        {{kWithMaster, elements, "a"}, {kEightBits, 5 * kRecord + 32, "b"}, {kEightBits, 64, "c"}});
    fill_all();
    EXPECT_EQ(counters_.nvme.read.load(), 0u);
    EXPECT_EQ(counters_.nvme.written.exchange(0), file_->bytes());
    for (int round = 1; round <= 4; ++round) {
      file_->pass().begin_round();
      go_over(file_->pass(), round);
      // Read ahead of a round and written after it: a round counts its own.
      EXPECT_EQ(counters_.nvme.read.exchange(0), file_->bytes());
      EXPECT_EQ(counters_.nvme.written.exchange(0), file_->bytes());
    }
    file_.reset();
    EXPECT_EQ(counters_.nvme.held.load(), 0u);
    EXPECT_EQ(arena_->total_usage(), 0u);
  }
}

TEST_P(StateFileTest, VisitsSeeAndChangeWhatRoundsWrite) {
  make({{kWithMaster, 9 * kRecord, "a"}, {kEightBits, 3 * kRecord, "b"}});
  fill_all();
  file_->pass().begin_round();
  go_over(file_->pass(), 1);  // some of the next round are read ahead now
  std::vector<size_t> seen;
  const auto visit = [&](const StateFile::SubGroup& group, std::byte* data) {
    for (uint64_t r = 0; r < group.records(); ++r) {
      std::byte* const record = file_->record(group, r, data);
      EXPECT_TRUE(holds(record, record_bytes(group, r), group.record + r, 1));
      fill(record, record_bytes(group, r), group.record + r, 7);
      seen.push_back(group.record + r);
    }
  };
  // Elements of the second and third sub-group of the first region.
  EXPECT_OK(file_->visit(0, 2 * kRecord + 17, 2 * kRecord, true, visit));
  EXPECT_EQ(seen, (std::vector<size_t>{2, 3, 4, 5}));
  file_->pass().begin_round();
  size_t changed = 0;
  while (!file_->pass().handed_out_all()) {
    EXPECT_OK(file_->pass().advance());
    std::byte* const data = file_->pass().front();
    if (data == nullptr) {
      file_->pass().wait(1'000'000);
      continue;
    }
    const StateFile::SubGroup& group = file_->pass().sub_group();
    for (uint64_t r = 0; r < group.records(); ++r) {
      EXPECT_OK(file_->verify(group, r, data));
      const std::byte* const record = file_->record(group, r, data);
      changed += holds(record, record_bytes(group, r), group.record + r, 7) ? 1 : 0;
    }
    file_->pass().pop();
  }
  EXPECT_EQ(changed, 4u);
}

TEST_P(StateFileTest, AFlippedBitIsFoundAndNamed) {
  make({{kWithMaster, 4 * kRecord, "the states of 'x'"}});
  fill_all();
  const uint64_t place = file_->sub_groups()[1].offset + kWithMaster.bytes(kRecord) + 5;
  std::byte byte{};
  const auto move = [&](bool write) {
    IoEngine& engine = storage_->engine();
    const auto ticket = write ? engine.write(storage_->file(), place, &byte, 1)
                              : engine.read(storage_->file(), place, &byte, 1);
    ticket->wait(-1);
    EXPECT_OK(ticket->status());
  };
  move(false);
  byte ^= std::byte{4};
  move(true);
  const Status found = file_->visit(0, 0, 4 * kRecord, false, [](const auto&, std::byte*) {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), MERON_E_CORRUPT);
  const ErrorInfo& info = found.error().info();
  EXPECT_THAT(info.what, testing::HasSubstr("elements 12288 to 16383 of the states of 'x'"));
  EXPECT_THAT(info.what, testing::HasSubstr(directory_.path()));
}

}  // namespace
}  // namespace meron
