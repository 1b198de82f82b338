// SPDX-License-Identifier: Apache-2.0
// Drives that fail, are silent, or move less than was asked, below block writers and readers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "block_files.h"
#include "io/fault_plan.h"

namespace meron {
namespace {

using checkpoint::BlockReader;
using checkpoint::BlockWriter;
using checkpoint::File;
using test::Content;
using test::content_of;

// Runs only if the build has fault points.
class FailingBlockFiles : public test::BlockFiles {
 protected:
  void SetUp() override {
    BlockFiles::SetUp();
    if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, FailingBlockFiles,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

TEST_P(FailingBlockFiles, EveryFailedWriteIsNamedAndFinal) {
  const Content content = content_of(1, 100'000);
  for (uint64_t n = 1;; ++n) {
    const std::string path = at(std::to_string(n));
    const auto staging = this->staging();
    const test::Faults faults(fmt::format("write:{}:EIO", n));
    const auto crc = test::write_content(staging, path, content, 4096, 5000);
    if (crc.ok()) {
      EXPECT_GE(n, 100'000 / 8192) << "every request failed once";
      break;
    }
    EXPECT_EQ(crc.error().code(), MERON_E_IO);
    EXPECT_EQ(crc.error().info().subject, path);
    EXPECT_THAT(crc.error().info().what,
                testing::AllOf(testing::HasSubstr("at offset"), testing::HasSubstr("EIO")));
  }
}

// A write may end at any moment while the writer looks at those under way.
TEST_P(FailingBlockFiles, NoFailedWriteIsLostWhereverItEnds) {
  constexpr uint64_t kWrites = 64;
  const Content content = content_of(1, kWrites * 4096);
  for (uint64_t turn = 0; turn < 400; ++turn) {
    const auto staging = this->staging(4096, kWrites);
    const test::Faults faults(fmt::format("write:{}:EIO", turn % kWrites + 1));
    const auto crc = test::write_content(staging, at(std::to_string(turn)), content);
    ASSERT_FALSE(crc.ok()) << "write " << turn % kWrites + 1 << " failed, and none was told";
    std::filesystem::remove(at(std::to_string(turn)));
  }
}

TEST_P(FailingBlockFiles, ShortAndInterruptedWritesAndReadsMoveAllBytes) {
  const Content content = content_of(1, 100'000);
  const test::Faults faults("write:*:short,read:2:eintr,read:*:short");
  const std::vector<File> files = {write("file", content, 8192)};
  auto reader = BlockReader::create(staging(), directory_.path(), files, test::all_of(files),
                                    {.block_bytes = 8192});
  const auto bytes = test::read_range(**reader);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, content);
}

TEST_P(FailingBlockFiles, AFailedSyncCondemnsTheFile) {
  const auto staging = this->staging();
  const auto writer = BlockWriter::create(staging, at("file"), {.total_bytes = 0});
  const test::Faults faults("fsync:1:EIO");
  const auto first = (*writer)->finish();
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code(), MERON_E_IO);
  EXPECT_EQ(first.error().info().subject, at("file"));
  EXPECT_THAT(first.error().info().what, testing::HasSubstr("sync"));
  EXPECT_FALSE((*writer)->finish().ok()) << "a second sync would succeed, and prove nothing";
}

TEST_P(FailingBlockFiles, AFailedOpenLeavesNoFile) {
  const auto staging = this->staging();
  const test::Faults faults("open:1:ENOSPC");
  const auto writer = BlockWriter::create(staging, at("file"), {.total_bytes = 0});
  EXPECT_EQ(writer.error().code(), MERON_E_NO_SPACE);
  EXPECT_FALSE(std::filesystem::exists(at("file")));
}

TEST_P(FailingBlockFiles, EveryFailedReadIsNamed) {
  const Content content = content_of(1, 50'000);
  const std::vector<File> files = {write("file", content, 8192)};
  for (uint64_t n = 1;; ++n) {
    const auto staging = this->staging();
    auto reader = BlockReader::create(staging, directory_.path(), files, test::all_of(files),
                                      {.block_bytes = 8192});
    const test::Faults faults(fmt::format("read:{}:EIO", n));
    const auto bytes = test::read_range(**reader);
    if (bytes.ok()) {
      EXPECT_GE(n, 50'000 / 8192);
      break;
    }
    EXPECT_EQ(bytes.error().code(), MERON_E_IO);
    EXPECT_EQ(bytes.error().info().subject, at("file"));
  }
}

TEST_P(FailingBlockFiles, ASilentDriveIsATimeoutAndItsBlockIsNotReusedMeanwhile) {
  const auto staging = this->staging(4096, 2);
  const Content content = content_of(1, 20'000);
  {
    const checkpoint::WriterOptions options = {.total_bytes = 20'000, .timeout_ns = 100'000'000};
    // Before the drive is silent: adding a file to the engine may wait for the engine's thread.
    const auto writer = BlockWriter::create(staging, at("file"), options);
    const auto other = BlockWriter::create(staging, at("other"), options);
    const test::Faults faults("write:1:hang");
    Status status = Ok{};
    for (int i = 0; status.ok() && i < 5; ++i) {
      const auto room = (*writer)->space(4096);
      status = room.ok() ? (*writer)->commit(room->size()) : Status(room.error());
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), MERON_E_TIMEOUT);
    EXPECT_EQ(status.error().info().subject, at("file"));
    const auto room = (*other)->space(1);
    ASSERT_FALSE(room.ok());
    EXPECT_EQ(room.error().code(), MERON_E_TIMEOUT);
  }
  EXPECT_TRUE(test::write_content(staging, at("third"), content).ok());
  EXPECT_EQ(this->content("third"), content);
}

TEST_P(FailingBlockFiles, CancellingEndsAWaitForADrive) {
  const auto staging = this->staging(4096, 1);
  const test::Faults faults("write:1:hang");
  const auto writer = BlockWriter::create(staging, at("file"), {.total_bytes = 20'000});
  ASSERT_TRUE((*writer)->space(4096).ok());
  EXPECT_OK((*writer)->commit(4096));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    (*writer)->cancel();
  });
  const int64_t began = now_ns();
  EXPECT_EQ((*writer)->space(1).error().code(), MERON_E_CANCELLED);
  EXPECT_LT(now_ns() - began, kHangNs / 2);
  other.join();
}

}  // namespace
}  // namespace meron
