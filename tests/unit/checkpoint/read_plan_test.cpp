// SPDX-License-Identifier: Apache-2.0
// Which blocks of which files are read for ranges, which of them are kept, and which reads a kept
// one saves.
#include "checkpoint/read_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace meron::checkpoint {
namespace {

constexpr uint64_t kBlock = 64 << 10;
constexpr uint64_t kPage = 4096;

std::vector<File> files_of(size_t count, uint64_t bytes) {
  std::vector<File> files(count);
  for (size_t f = 0; f < count; ++f) {
    files[f].name = "f" + std::to_string(f);
    files[f].bytes = bytes;
  }
  return files;
}

std::vector<PlannedRead> plan(const std::vector<File>& files, std::vector<WantedRange> ranges,
                              bool whole_blocks = true, uint64_t read_bytes = kBlock) {
  const auto reads =
      plan_reads(files, ranges,
                 {.block_bytes = kBlock, .read_bytes = read_bytes, .whole_blocks = whole_blocks});
  EXPECT_TRUE(reads.ok());
  return reads.ok() ? *reads : std::vector<PlannedRead>();
}

std::string text_of(const std::vector<PlannedRead>& reads) {
  std::string text;
  for (const PlannedRead& read : reads) {
    text += std::to_string(read.file) + ":" + std::to_string(read.offset) + "+" +
            std::to_string(read.bytes) + (read.keep ? " keep" : "") +
            (read.repeat ? " repeat" : "") + "; ";
  }
  return text;
}

TEST(ReadPlan, WholeBlocksCoverARangeAndTheLastOneEndsWithTheFile) {
  const auto files = files_of(1, 2 * kBlock + 100);
  EXPECT_EQ(text_of(plan(files, {{0, kBlock - 1, kBlock + 51}})),
            "0:0+65536; 0:65536+65536; 0:131072+100; ");
  EXPECT_EQ(text_of(plan(files, {{0, 2 * kBlock, 0}})), "") << "an empty range needs nothing";
}

TEST(ReadPlan, AReadHasAsManyBlocksAsMayBeButNoneInWhichWantedBytesBeginOrEnd) {
  const auto files = files_of(2, 6 * kBlock + 100);
  const auto text = [&](std::vector<WantedRange> ranges) {
    return text_of(plan(files, std::move(ranges), true, 2 * kBlock + kPage));
  };
  EXPECT_EQ(text({{0, 0, 6 * kBlock + 100}}), "0:0+131072; 0:131072+131072; 0:262144+131172; ");
  EXPECT_EQ(text({{0, kPage, 4 * kBlock}}),
            "0:0+65536; 0:65536+131072; 0:196608+65536; 0:262144+65536; ");
  // Ranges that follow one another are as one.
  EXPECT_EQ(text({{0, 0, kBlock + 1}, {0, kBlock + 1, 0}, {0, kBlock + 1, kBlock - 1}, {1, 0, 1}}),
            "0:0+131072; 1:0+65536; ");
  EXPECT_EQ(text({{0, 0, kBlock + 1}, {1, 0, 1}, {0, kBlock + 1, 2 * kBlock - 1}}),
            "0:0+65536; 0:65536+65536 keep; 1:0+65536; 0:65536+65536 repeat; 0:131072+65536; ");
}

TEST(ReadPlan, SharedBytesAreReadsOfTheirOwn) {
  const auto reads = plan(files_of(1, 4 * kBlock),
                          {{0, 0, kBlock, false}, {0, kBlock, kBlock, true}}, true, 4 * kBlock);
  ASSERT_EQ(reads.size(), 2U);
  EXPECT_FALSE(reads[0].shared);
  EXPECT_TRUE(reads[1].shared);
}

TEST(ReadPlan, ABlockInWhichOneRangeEndsAndTheNextBeginsIsReadOnce) {
  EXPECT_EQ(text_of(plan(files_of(1, 4 * kBlock), {{0, 0, 10}, {0, 10, 20}, {0, 30, kBlock}})),
            "0:0+65536; 0:65536+65536; ");
}

TEST(ReadPlan, AmongOtherFilesThatBlockIsKept) {
  const auto files = files_of(3, 4 * kBlock);
  const auto reads =
      plan(files, {{0, 0, kBlock + 10}, {1, 0, 10}, {2, 0, 10}, {0, kBlock + 10, 10}, {1, 10, 5}});
  EXPECT_EQ(text_of(reads),
            "0:0+65536; 0:65536+65536 keep; 1:0+65536 keep; 2:0+65536; 0:65536+65536 repeat; "
            "1:0+65536 repeat; ");
}

TEST(ReadPlan, ACopyServesAsOftenAsItIsWanted) {
  const auto reads =
      plan(files_of(2, kBlock), {{0, 0, 1}, {1, 0, 1}, {0, 1, 1}, {1, 1, 1}, {0, 2, 1}});
  EXPECT_EQ(text_of(reads),
            "0:0+65536 keep; 1:0+65536 keep; 0:0+65536 keep repeat; 1:0+65536 repeat; "
            "0:0+65536 repeat; ");
}

TEST(ReadPlan, OnlyTheLastBlockOfAFileIsKept) {
  const auto reads = plan(files_of(2, 4 * kBlock), {{0, 0, kBlock + 1}, {1, 0, 1}, {0, 0, 1}});
  EXPECT_EQ(text_of(reads), "0:0+65536; 0:65536+65536; 1:0+65536; 0:0+65536; ");
}

TEST(ReadPlan, OfManyFilesThoseThatWereReadLastAreKept) {
  for (const size_t others : {kKeptFiles - 1, kKeptFiles}) {
    std::vector<WantedRange> ranges = {{0, 0, 10}};
    for (size_t f = 1; f <= others; ++f) ranges.push_back({static_cast<uint32_t>(f), 0, 10});
    ranges.push_back({0, 10, 10});
    const auto reads = plan(files_of(others + 1, kBlock), ranges);
    ASSERT_EQ(reads.size(), others + 2);
    EXPECT_EQ(reads.front().keep, others < kKeptFiles) << others;
    EXPECT_EQ(reads.back().repeat, others < kKeptFiles) << others;
  }
}

TEST(ReadPlan, WithoutChecksumsReadsArePagesAndGapsAreReadAlong) {
  const auto files = files_of(2, 4 * kBlock);
  EXPECT_EQ(text_of(plan(files, {{0, 10, 10}}, false)), "0:0+4096; ");
  EXPECT_EQ(text_of(plan(files, {{0, 10, 10}, {0, kPage * 3 + 1, 10}}, false)), "0:0+16384; ");
  // A read ends with its block, and what is kept for checksums is not kept here.
  EXPECT_EQ(text_of(plan(files, {{0, kBlock - 1, 2}}, false)), "0:61440+4096; 0:65536+4096; ");
  EXPECT_EQ(text_of(plan(files, {{0, 0, 10}, {1, 0, 10}, {0, 10, 10}}, false)),
            "0:0+4096; 1:0+4096; 0:0+4096; ");
}

TEST(ReadPlan, ARangeOutsideOfItsFileIsRefused) {
  const auto files = files_of(1, 100);
  for (const WantedRange& range : std::vector<WantedRange>{
           {1, 0, 1}, {0, 101, 0}, {0, 0, 101}, {0, 50, 51}, {0, 1, UINT64_MAX}}) {
    const auto reads = plan_reads(files, std::vector<WantedRange>{range},
                                  {.block_bytes = kBlock, .read_bytes = kBlock});
    ASSERT_FALSE(reads.ok());
    EXPECT_EQ(reads.error().code(), MERON_E_ARGUMENT);
  }
}

// The reader's assumptions: the bytes of the ranges are in the current read or in the next one, and
// a copy exists if a read needs it.
void expect_usable(const std::vector<PlannedRead>& reads, const std::vector<WantedRange>& ranges) {
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> kept;  // by file, offset and length of a copy
  const auto begin = [&](const PlannedRead& read) {
    ASSERT_TRUE(!read.repeat || (kept.count(read.file) == 1 &&
                                 kept[read.file] == std::pair(read.offset, read.bytes)));
  };
  size_t at = 0;
  if (!reads.empty()) begin(reads[0]);
  for (const WantedRange& range : ranges) {
    for (uint64_t byte = range.offset; byte < range.offset + range.bytes;) {
      if (!reads[at].covers(range.file, byte)) {
        if (reads[at].keep) kept[reads[at].file] = {reads[at].offset, reads[at].bytes};
        if (!reads[at].keep && reads[at].repeat) kept.erase(reads[at].file);
        ASSERT_LT(++at, reads.size());
        begin(reads[at]);
        ASSERT_TRUE(reads[at].covers(range.file, byte));
      }
      byte = reads[at].offset + reads[at].bytes;
    }
  }
  EXPECT_LE(kept.size(), kKeptFiles);
}

TEST(ReadPlan, EveryPlanGivesAllBytesInTheirOrder) {
  std::mt19937 random(7);
  const auto draw = [&](uint64_t below) {
    return std::uniform_int_distribution<uint64_t>(0, below - 1)(random);
  };
  for (int round = 0; round < 500; ++round) {
    const uint64_t bytes = 1 + draw(5 * kBlock);
    const auto files = files_of(1 + draw(kKeptFiles + 4), bytes);
    std::vector<WantedRange> ranges;
    std::vector<uint64_t> next(files.size());
    for (uint64_t count = draw(60); count > 0; --count) {
      const auto file = static_cast<uint32_t>(draw(files.size()));
      // Mostly where the one before ended, as tensors of one unit after the other.
      const uint64_t offset = draw(4) != 0 ? next[file] : draw(bytes);
      const uint64_t length = draw(std::min(bytes - offset, kBlock + 100) + 1);
      ranges.push_back({file, offset, length});
      next[file] = offset + length;
    }
    const uint64_t read_bytes = kBlock + draw(4 * kBlock);
    for (const bool whole : {true, false}) {
      SCOPED_TRACE(std::to_string(round) + (whole ? " blocks" : " pages"));
      ASSERT_NO_FATAL_FAILURE(expect_usable(plan(files, ranges, whole, read_bytes), ranges));
    }
  }
}

}  // namespace
}  // namespace meron::checkpoint
