// SPDX-License-Identifier: Apache-2.0
// Files that are written and read block by block, of either backend of the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "../os/child_process.h"
#include "block_files.h"
#include "kernels/cpu/crc32c.h"

namespace meron {
namespace {

using checkpoint::BlockReader;
using checkpoint::BlockWriter;
using checkpoint::File;
using checkpoint::Staging;
using checkpoint::WantedRange;
using test::BlockFiles;
using test::Content;
using test::content_of;

INSTANTIATE_TEST_SUITE_P(Backends, BlockFiles,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

TEST_P(BlockFiles, HaveTheBytesAndChecksumsOfWhatWasGiven) {
  constexpr uint64_t kBlock = 16 << 10;
  std::vector<uint64_t> sizes = {0, 1, 4095, 4096, 4097, 5 << 20};
  for (const uint64_t edge : {kBlock, 2 * kBlock, 3 * kBlock, 4 * kBlock, 8 * kBlock}) {
    sizes.insert(sizes.end(), {edge - 1, edge, edge + 1});
  }
  const auto staging = this->staging(kBlock);
  int number = 0;
  // Several checksums per write, one, and one per several writes.
  for (const uint64_t block_bytes : {uint64_t{8192}, kBlock, 4 * kBlock}) {
    for (const uint64_t bytes : sizes) {
      const std::string name = std::to_string(number++);
      const Content given = content_of(bytes, bytes);
      const auto crc = test::write_content(staging, at(name), given, block_bytes, 5000);
      ASSERT_TRUE(crc.ok()) << bytes;
      EXPECT_EQ(content(name), given) << bytes;
      std::vector<uint32_t> expected;
      for (uint64_t i = 0; i < bytes; i += block_bytes) {
        expected.push_back(kernels::crc32c(given.data() + i, std::min(block_bytes, bytes - i)));
      }
      EXPECT_EQ(*crc, expected) << bytes;
      std::filesystem::remove(at(name));
    }
  }
}

TEST_P(BlockFiles, TheWriterCountsItsBytesAndHandsOutBoundedRoom) {
  const auto staging = this->staging();
  const auto writer = BlockWriter::create(staging, at("file"), {.total_bytes = 100'000});
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(std::filesystem::file_size(at("file")), 100'000U) << "the room is taken up front";
  for (uint64_t left = 100'000; left != 0;) {
    const auto room = (*writer)->space(1 << 30);
    ASSERT_TRUE(room.ok());
    EXPECT_EQ(room->size(), std::min<uint64_t>(left, 16 << 10));
    std::fill(room->begin(), room->end(), std::byte{7});
    EXPECT_OK((*writer)->commit(room->size()));
    left -= room->size();
  }
  ASSERT_TRUE((*writer)->finish().ok());
  EXPECT_EQ((*writer)->bytes_written(), 100'000U);
  EXPECT_EQ((*writer)->space(1).error().code(), MERON_E_STATE);
  EXPECT_EQ(content("file"), Content(100'000, std::byte{7}));
}

// As a rank's save does it: all files are written before the first one is synced.
TEST_P(BlockFiles, AFileThatIsFinishedLaterKeepsItsLastBlock) {
  constexpr uint64_t kBlock = 16 << 10;
  const auto staging = this->staging(kBlock);
  const std::vector<uint64_t> sizes = {kBlock + 4096, 20 * kBlock, 1, 20 * kBlock + 1};
  std::vector<std::unique_ptr<BlockWriter>> writers;
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto writer = BlockWriter::create(staging, at(std::to_string(i)), {.total_bytes = sizes[i]});
    ASSERT_TRUE(writer.ok());
    const Content given = content_of(i, sizes[i]);
    for (uint64_t done = 0; done < sizes[i];) {
      const auto room = (*writer)->space(sizes[i] - done);
      ASSERT_TRUE(room.ok());
      std::copy_n(given.begin() + static_cast<ptrdiff_t>(done), room->size(), room->begin());
      EXPECT_OK((*writer)->commit(room->size()));
      done += room->size();
    }
    writers.push_back(std::move(*writer));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(writers[i]->finish().ok());
    EXPECT_EQ(content(std::to_string(i)), content_of(i, sizes[i])) << i;
  }
}

TEST_P(BlockFiles, MisuseOfTheWriterIsAnError) {
  const auto staging = this->staging();
  const auto begin = [&](const std::string& name) {
    auto writer = BlockWriter::create(staging, at(name), {.total_bytes = 10});
    EXPECT_TRUE(writer.ok());
    return std::move(writer).value();
  };
  auto writer = begin("too-few");
  EXPECT_EQ(writer->finish().error().code(), MERON_E_STATE);
  EXPECT_EQ(writer->space(1).error().code(), MERON_E_STATE) << "the first failure is final";
  writer = begin("too-many");
  EXPECT_EQ(writer->commit(1).error().code(), MERON_E_ARGUMENT);
  writer = begin("beyond");
  ASSERT_TRUE(writer->space(10).ok());
  EXPECT_OK(writer->commit(10));
  EXPECT_EQ(writer->space(1).error().code(), MERON_E_ARGUMENT);
  EXPECT_FALSE(BlockWriter::create(staging, at("beyond"), {.total_bytes = 1}).ok()) << "is taken";
  EXPECT_EQ(
      BlockWriter::create(staging, at("x"), {.total_bytes = 1, .block_bytes = 0}).error().code(),
      MERON_E_ARGUMENT);
  EXPECT_EQ(BlockWriter::create(staging, at("none/x"), {.total_bytes = 1}).error().code(),
            MERON_E_NOT_FOUND);
  EXPECT_FALSE(Staging::create(*IoEngine::create(), 1000, 3).ok());
  EXPECT_FALSE(Staging::create(*IoEngine::create(), 4096, 0).ok());
}

TEST_P(BlockFiles, WhatLacksRoomIsRefusedAndLeavesNoFile) {
  {
    const auto staging = this->staging();
    const auto writer = BlockWriter::create(staging, at("file"), {.total_bytes = 1ULL << 50});
    ASSERT_FALSE(writer.ok());
    EXPECT_EQ(writer.error().code(), MERON_E_NO_SPACE);
    EXPECT_EQ(writer.error().info().subject, at("file"));
    EXPECT_THAT(writer.error().info().what, testing::HasSubstr("free, and 1.0 PiB are needed"));
    EXPECT_FALSE(std::filesystem::exists(at("file")));
  }
  EXPECT_EQ(test::run_in_child([&] {
              const rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
              CHILD_EXPECT(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
              const auto own = this->staging();
              const auto none =
                  BlockWriter::create(own, at("file"), {.total_bytes = (1 << 20) + 1});
              CHILD_EXPECT(!none.ok() && none.error().code() == MERON_E_NO_SPACE);
              CHILD_EXPECT(!std::filesystem::exists(at("file")));
              CHILD_EXPECT(test::write_content(own, at("file"), content_of(1, 1 << 20)).ok());
              return 0;
            }),
            0);
}

TEST_P(BlockFiles, RangesAreReadAsTheyWereWritten) {
  constexpr uint64_t kBlock = 8192;
  std::mt19937_64 random(20);
  std::vector<File> files;
  std::vector<Content> contents;
  for (const uint64_t bytes : {100'000ul, 0ul, 8192ul, 12'289ul, 300'001ul}) {
    contents.push_back(content_of(bytes, bytes));
    files.push_back(write(std::to_string(bytes), contents.back(), kBlock));
  }
  const auto staging = this->staging(16 << 10, 4);
  for (const bool verify : {true, false}) {
    for (int trial = 0; trial < 30; ++trial) {
      std::vector<WantedRange> ranges;
      uint64_t at = 0;
      for (int i = 0; i < 20; ++i) {
        const auto file = static_cast<uint32_t>(random() % files.size());
        // As often as not the range after the last one, or near to it.
        const bool follows = !ranges.empty() && random() % 2 == 0;
        const uint32_t which = follows ? ranges.back().file : file;
        const uint64_t size = files[which].bytes;
        const uint64_t offset =
            follows ? std::min(size, at + random() % 3 * 1000) : random() % (size + 1);
        const uint64_t bytes = random() % (std::min<uint64_t>(size - offset, 40'000) + 1);
        ranges.push_back(
            {.file = which, .offset = offset, .bytes = bytes, .shared = random() % 4 == 0});
        at = offset + bytes;
      }
      auto reader = BlockReader::create(staging, directory_.path(), files, ranges,
                                        {.block_bytes = kBlock, .verify = verify});
      ASSERT_TRUE(reader.ok());
      for (const WantedRange& range : ranges) {
        const auto bytes = test::read_range(**reader);
        ASSERT_TRUE(bytes.ok()) << test::text_of(bytes.error());
        const auto first = contents[range.file].begin() + static_cast<std::ptrdiff_t>(range.offset);
        EXPECT_EQ(*bytes, Content(first, first + static_cast<std::ptrdiff_t>(range.bytes)));
      }
      EXPECT_EQ((*reader)->next().error().code(), MERON_E_STATE);
    }
  }
}

TEST_P(BlockFiles, ABlockIsReadOnceForConsecutiveRanges) {
  constexpr uint64_t kBlock = 8192;
  const std::vector<File> files = {write("file", content_of(1, 10 * kBlock + 5), kBlock)};
  std::vector<WantedRange> ranges;
  for (uint64_t at = 0; at < files[0].bytes; at += 100) {
    ranges.push_back(
        {.file = 0, .offset = at, .bytes = std::min<uint64_t>(100, files[0].bytes - at)});
  }
  for (const bool verify : {true, false}) {
    auto reader = BlockReader::create(staging(), directory_.path(), files, ranges,
                                      {.block_bytes = kBlock, .verify = verify});
    ASSERT_TRUE(reader.ok());
    for (size_t i = 0; i < ranges.size(); ++i) ASSERT_TRUE(test::read_range(**reader).ok());
    EXPECT_EQ((*reader)->bytes_read(), files[0].bytes);
  }
  // Without checksums only the pages of a range are read.
  auto reader = BlockReader::create(staging(64 << 10), directory_.path(), files,
                                    {{.file = 0, .offset = 5000, .bytes = 10}},
                                    {.block_bytes = 64 << 10, .verify = false});
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(test::read_range(**reader).ok());
  EXPECT_EQ((*reader)->bytes_read(), 4096U);
}

TEST_P(BlockFiles, MoreFilesThanStayOpenAreRead) {
  std::vector<File> files;
  std::vector<WantedRange> ranges;
  for (uint32_t i = 0; i < 100; ++i) {
    files.push_back(write(std::to_string(i), content_of(i, 5000), 4096));
    ranges.push_back({.file = i, .offset = 4000, .bytes = 1000});
  }
  ranges.insert(ranges.end(), ranges.rbegin(), ranges.rend());
  EXPECT_EQ(test::run_in_child([&] {
              const rlimit limit = {.rlim_cur = 150, .rlim_max = 150};
              CHILD_EXPECT(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
              auto reader = BlockReader::create(staging(), directory_.path(), files, ranges,
                                                {.block_bytes = 4096});
              CHILD_EXPECT(reader.ok());
              for (const WantedRange& range : ranges) {
                const Content whole = content_of(range.file, 5000);
                const auto bytes = test::read_range(**reader);
                CHILD_EXPECT(bytes.ok() && *bytes == Content(whole.begin() + 4000, whole.end()));
              }
              return 0;
            }),
            0);
}

TEST_P(BlockFiles, AFlippedBitIsFoundInItsBlockBeforeAnyByteOfIt) {
  constexpr uint64_t kBlock = 8192, kBlocks = 9;
  std::mt19937_64 random(21);
  const uint64_t bytes = (kBlocks - 1) * kBlock + 77;
  const Content content = content_of(1, bytes);
  const std::vector<File> files = {write("file", content, kBlock)};
  const auto staging = this->staging();
  for (uint64_t block = 0; block < kBlocks; ++block) {
    const uint64_t length = std::min(kBlock, bytes - block * kBlock);
    const uint64_t flipped = block * kBlock + random() % length;
    const int bit = static_cast<int>(random() % 8);
    test::flip_bit(at("file"), flipped, bit);
    auto reader = BlockReader::create(staging, directory_.path(), files, test::all_of(files),
                                      {.block_bytes = kBlock});
    ASSERT_TRUE(reader.ok());
    uint64_t handed_out = 0;
    while (true) {
      const auto piece = (*reader)->next();
      if (piece.ok()) {
        ASSERT_FALSE(piece->empty()) << "the flipped bit in block " << block << " was not found";
        handed_out += piece->size();
        continue;
      }
      EXPECT_EQ(piece.error().code(), MERON_E_CORRUPT);
      EXPECT_EQ(piece.error().info().subject, at("file"));
      EXPECT_THAT(piece.error().info().what,
                  testing::HasSubstr("block of " + std::to_string(length) + " bytes at offset " +
                                     std::to_string(block * kBlock) + " "));
      EXPECT_THAT(piece.error().info().what,
                  testing::HasSubstr(fmt::format("not {:08x}", files[0].crc[block])));
      break;
    }
    EXPECT_EQ(handed_out, block * kBlock);
    EXPECT_EQ((*reader)->next().error().code(), MERON_E_CORRUPT) << "the first failure is final";
    test::flip_bit(at("file"), flipped, bit);
  }
}

TEST_P(BlockFiles, AReadOfManyBlocksNamesTheDamagedOneAndGivesAllBefore) {
  constexpr uint64_t kBlock = 8192;
  const Content content = content_of(1, 16 * kBlock);
  const std::vector<File> files = {write("file", content, kBlock)};
  test::flip_bit(at("file"), 11 * kBlock + 5, 3);
  auto reader = BlockReader::create(staging(8 * kBlock), directory_.path(), files,
                                    {{0, 0, 11 * kBlock}, {0, 11 * kBlock, 5 * kBlock}},
                                    {.block_bytes = kBlock});
  ASSERT_TRUE(reader.ok());
  const auto before = test::read_range(**reader);
  ASSERT_TRUE(before.ok()) << "the damage is in another range";
  EXPECT_EQ(*before, Content(content.begin(), content.begin() + 11 * kBlock));
  const auto damaged = (*reader)->next();
  ASSERT_FALSE(damaged.ok());
  EXPECT_THAT(damaged.error().info().what,
              testing::HasSubstr("block of 8192 bytes at offset 90112"));
}

TEST_P(BlockFiles, AnotherLengthIsFoundBeforeAnythingIsRead) {
  const Content content = content_of(1, 20'000);
  const std::vector<File> files = {write("file", content, 8192)};
  for (const uint64_t bytes : {0ul, 1ul, 8191ul, 8192ul, 19'999ul, 20'001ul, 30'000ul}) {
    std::filesystem::resize_file(at("file"), bytes);
    const auto reader =
        BlockReader::create(staging(), directory_.path(), files,
                            {{.file = 0, .offset = 0, .bytes = 1}}, {.block_bytes = 8192});
    ASSERT_FALSE(reader.ok()) << bytes;
    EXPECT_EQ(reader.error().code(), MERON_E_CORRUPT);
    EXPECT_EQ(reader.error().info().subject, at("file"));
    EXPECT_THAT(reader.error().info().what,
                testing::AllOf(testing::HasSubstr(std::to_string(bytes) + " bytes"),
                               testing::HasSubstr("20000")));
  }
}

TEST_P(BlockFiles, AFileThatIsCutWhileItIsReadIsCorrupt) {
  const Content content = content_of(1, 1 << 20);
  const std::vector<File> files = {write("file", content, 8192)};
  auto reader = BlockReader::create(staging(16 << 10, 2), directory_.path(), files,
                                    test::all_of(files), {.block_bytes = 8192});
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE((*reader)->next().ok());
  std::filesystem::resize_file(at("file"), 100'000);
  const auto rest = test::read_range(**reader);
  ASSERT_FALSE(rest.ok());
  EXPECT_EQ(rest.error().code(), MERON_E_CORRUPT);
  EXPECT_THAT(rest.error().info().what, testing::HasSubstr("cut to 100000 bytes"));
}

TEST_P(BlockFiles, WhatTheReaderIsGivenIsChecked) {
  std::vector<File> files = {write("file", content_of(1, 10'000), 4096)};
  const auto error_of = [&](const WantedRange& range, bool verify = true) {
    const auto reader = BlockReader::create(staging(), directory_.path(), files, {range},
                                            {.block_bytes = 4096, .verify = verify});
    return reader.ok() ? MERON_OK : reader.error().code();
  };
  EXPECT_EQ(error_of({.file = 0, .offset = 10'000, .bytes = 0}), MERON_OK);
  EXPECT_EQ(error_of({.file = 0, .offset = 9999, .bytes = 2}), MERON_E_ARGUMENT);
  EXPECT_EQ(error_of({.file = 0, .offset = UINT64_MAX, .bytes = 2}), MERON_E_ARGUMENT);
  EXPECT_EQ(error_of({.file = 0, .offset = 2, .bytes = UINT64_MAX}), MERON_E_ARGUMENT);
  EXPECT_EQ(error_of({.file = 1, .offset = 0, .bytes = 1}), MERON_E_ARGUMENT);
  const WantedRange all = {.file = 0, .offset = 0, .bytes = 10'000};
  EXPECT_EQ(error_of(all), MERON_OK);
  files[0].crc.pop_back();
  EXPECT_EQ(error_of(all), MERON_E_CORRUPT);
  EXPECT_EQ(error_of(all, false), MERON_OK);
  // A size by which much would be planned.
  files[0].bytes = 1ULL << 60;
  EXPECT_EQ(error_of({.file = 0, .offset = 0, .bytes = 1ULL << 60}, false), MERON_E_CORRUPT);
  files[0].bytes = 10'000;
  std::filesystem::create_symlink(at("file"), at("link"));
  files[0].name = "link";
  EXPECT_EQ(error_of(all, false), MERON_E_AUTH);
  files[0].name = "none";
  EXPECT_EQ(error_of(all, false), MERON_E_NOT_FOUND);
  EXPECT_EQ(BlockReader::create(staging(), directory_.path(), files, {}, {.block_bytes = 1 << 20})
                .error()
                .code(),
            MERON_E_ARGUMENT);
}

TEST_P(BlockFiles, CancellingEndsBoth) {
  const auto staging = this->staging();
  const auto writer = BlockWriter::create(staging, at("file"), {.total_bytes = 10});
  (*writer)->cancel();
  EXPECT_EQ((*writer)->space(1).error().code(), MERON_E_CANCELLED);
  EXPECT_EQ((*writer)->finish().error().code(), MERON_E_CANCELLED);
  const std::vector<File> files = {write("other", content_of(1, 10'000), 4096)};
  auto reader = BlockReader::create(staging, directory_.path(), files, test::all_of(files),
                                    {.block_bytes = 4096});
  ASSERT_TRUE((*reader)->next().ok());
  (*reader)->cancel();
  EXPECT_EQ((*reader)->next().error().code(), MERON_E_CANCELLED);
}

}  // namespace
}  // namespace meron
