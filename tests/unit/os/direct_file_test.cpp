// SPDX-License-Identifier: Apache-2.0
#include "os/direct_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "child_process.h"
#include "os/file.h"

namespace meron {
namespace {

class DirectFileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "direct-XXXXXX";
    ASSERT_NE(::mkdtemp(path_.data()), nullptr);
    const auto made = DirectFile::create(path_);
    if (!made.ok()) GTEST_SKIP() << made.error().info().what;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  std::string path_;
};

TEST_F(DirectFileTest, HasNoNameAndIsItsOwnersAlone) {
  const auto file = DirectFile::create(path_, 1 << 20);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(std::filesystem::is_empty(path_));
  struct stat found {};
  ASSERT_EQ(::fstat(file->fd(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  EXPECT_EQ(found.st_nlink, 0u);
  EXPECT_EQ(found.st_size, 0);
  EXPECT_NE(::fcntl(file->fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(file->buffered_fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::fcntl(file->buffered_fd(), F_GETFL) & O_DIRECT, 0);
  EXPECT_EQ(file->direct(), (::fcntl(file->fd(), F_GETFL) & O_DIRECT) != 0);
  EXPECT_EQ(file->direct(), file->why_buffered().empty());
  EXPECT_GE(file->offset_alignment(), 4096u);
}

TEST_F(DirectFileTest, BothDescriptorsAreTheSameFile) {
  const auto file = DirectFile::create(path_);
  ASSERT_TRUE(file.ok());
  const uint64_t bytes = file->offset_alignment();
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(bytes, bytes));
  std::memset(memory, 7, bytes);
  EXPECT_EQ(write_at(file->fd(), memory, bytes, 0), static_cast<int64_t>(bytes));
  std::byte one{};
  EXPECT_EQ(read_at(file->buffered_fd(), &one, 1, bytes - 1), 1);
  EXPECT_EQ(one, std::byte{7});
  one = std::byte{9};
  EXPECT_EQ(write_at(file->buffered_fd(), &one, 1, 1), 1);
  EXPECT_EQ(read_at(file->fd(), memory, bytes, 0), static_cast<int64_t>(bytes));
  EXPECT_EQ(memory[0], std::byte{7});
  EXPECT_EQ(memory[1], std::byte{9});
  EXPECT_EQ(read_at(file->fd(), memory, bytes, 10 * bytes), 0);
  EXPECT_EQ(read_at(-1, memory, bytes, 0), -EBADF);
  std::free(memory);
}

TEST_F(DirectFileTest, WithoutUnnamedFilesTheNameIsGoneAtOnce) {
  EXPECT_EQ(
      test::run_in_child([&] {
        // openat's third argument: the flags of the attempt at an unnamed file.
        CHILD_EXPECT(test::deny_syscall(SYS_openat, EOPNOTSUPP, O_TMPFILE | O_RDWR | O_CLOEXEC));
        const auto file = DirectFile::create(path_);
        CHILD_EXPECT(file.ok());
        CHILD_EXPECT(std::filesystem::is_empty(path_));
        struct stat found {};
        CHILD_EXPECT(::fstat(file->fd(), &found) == 0);
        CHILD_EXPECT(found.st_nlink == 0 && (found.st_mode & 07777) == 0600);
        return 0;
      }),
      0);
}

TEST_F(DirectFileTest, ANameThatCannotGoAtOnceGoesAtTheEnd) {
  EXPECT_EQ(
      test::run_in_child([&] {
        CHILD_EXPECT(test::deny_syscall(SYS_openat, EOPNOTSUPP, O_TMPFILE | O_RDWR | O_CLOEXEC));
        CHILD_EXPECT(test::deny_syscall(SYS_unlink, EBUSY));
        auto file = DirectFile::create(path_);
        CHILD_EXPECT(file.ok());
        CHILD_EXPECT(!std::filesystem::is_empty(path_));
        return 0;
      }),
      0);
  std::filesystem::remove_all(path_);
}

TEST_F(DirectFileTest, RefusedDirectIoIsBuffered) {
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_openat, EINVAL, O_RDWR | O_DIRECT | O_CLOEXEC));
              const auto file = DirectFile::create(path_);
              CHILD_EXPECT(file.ok());
              CHILD_EXPECT(!file->direct() && file->fd() == file->buffered_fd());
              CHILD_EXPECT(file->why_buffered().find("EINVAL") != std::string::npos);
              return 0;
            }),
            0);
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_pwrite64, EINVAL));
              const auto file = DirectFile::create(path_);
              CHILD_EXPECT(file.ok() && (!file->direct() || file->why_buffered().empty()));
              CHILD_EXPECT(!file->direct());
              return 0;
            }),
            0);
}

TEST_F(DirectFileTest, ReservesRoomAndSaysWhenThereIsNone) {
  const auto file = DirectFile::create(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->reserve(0, 1 << 20).ok());
  EXPECT_EQ(*file->size(), 1u << 20);
  struct stat found {};
  ASSERT_EQ(::fstat(file->fd(), &found), 0);
  EXPECT_GE(found.st_blocks * 512, 1 << 20);
  const Status refused = file->reserve(1 << 20, 1ull << 43);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(*file->size(), 1u << 20);
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_fallocate, EOPNOTSUPP));
              CHILD_EXPECT(file->reserve(1 << 20, 1 << 20).ok());
              CHILD_EXPECT(*file->size() == 2u << 20);
              const Status full = file->reserve(2 << 20, 1ull << 60);
              CHILD_EXPECT(!full.ok() && full.error().code() == MERON_E_NO_SPACE);
              CHILD_EXPECT(full.error().info().what.find("needed") != std::string::npos);
              const rlimit small{.rlim_cur = 3 << 20, .rlim_max = 3 << 20};
              CHILD_EXPECT(::setrlimit(RLIMIT_FSIZE, &small) == 0);
              const Status limited = file->reserve(0, 4 << 20);
              CHILD_EXPECT(!limited.ok() && limited.error().code() == MERON_E_NO_SPACE);
              CHILD_EXPECT(limited.error().info().advice.find("ulimit -f") != std::string::npos);
              return 0;
            }),
            0);
}

TEST_F(DirectFileTest, NamesWhatIsWrongWithADirectory) {
  const auto missing = DirectFile::create(path_ + "/none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), MERON_E_NOT_FOUND);
  EXPECT_EQ(missing.error().info().subject, path_ + "/none");

  ASSERT_TRUE(write_file(path_ + "/file", "x").ok());
  const auto no_directory = DirectFile::create(path_ + "/file");
  EXPECT_EQ(no_directory.error().code(), MERON_E_ARGUMENT);

  const auto full = DirectFile::create(path_, 1ull << 60);
  EXPECT_EQ(full.error().code(), MERON_E_NO_SPACE);
  EXPECT_THAT(full.error().info().what, testing::HasSubstr("are needed"));

  const auto memory = DirectFile::create("/dev/shm");
  if (std::filesystem::exists("/dev/shm") && !memory.ok()) {
    EXPECT_EQ(memory.error().code(), MERON_E_ARGUMENT);
    EXPECT_THAT(memory.error().info().what, testing::HasSubstr("is in memory"));
  }

  ASSERT_EQ(::chmod(path_.c_str(), 0555), 0);
  EXPECT_EQ(test::run_in_child([&] {
              if (::geteuid() == 0) CHILD_EXPECT(::setuid(65534) == 0);
              const auto refused = DirectFile::create(path_);
              CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_ARGUMENT);
              CHILD_EXPECT(refused.error().info().what.find("EACCES") != std::string::npos);
              return 0;
            }),
            0);
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
}

TEST_F(DirectFileTest, OpensWhatIsThere) {
  ASSERT_TRUE(write_file(path_ + "/file", std::string(10'000, 'x')).ok());
  const auto file = DirectFile::open(path_ + "/file");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->size(), 10'000u);
  EXPECT_EQ(file->path(), path_ + "/file");
  EXPECT_EQ(DirectFile::open(path_ + "/none").error().code(), MERON_E_NOT_FOUND);
  EXPECT_FALSE(DirectFile::open(path_).ok());
  EXPECT_EQ(DirectFile::open("/dev/null").error().code(), MERON_E_ARGUMENT);
}

// True if byte `at` is in the page cache.
bool is_cached(const DirectFile& file, uint64_t at) {
  char byte = 0;
  const iovec to = {.iov_base = &byte, .iov_len = 1};
  return ::preadv2(file.buffered_fd(), &to, 1, static_cast<off_t>(at), RWF_NOWAIT) == 1;
}

TEST_F(DirectFileTest, WhatWillBeNeededIsReadIntoThePageCache) {
  constexpr uint64_t kBytes = 1 << 20, kFrom = 512 << 10, kCount = 64 << 10;
  ASSERT_TRUE(write_file(path_ + "/file", std::string(kBytes, 'x')).ok());
  const auto file = DirectFile::open(path_ + "/file");
  ASSERT_TRUE(file.ok());
  file->stop_read_ahead();
  ASSERT_EQ(::fsync(file->buffered_fd()), 0);
  ASSERT_EQ(::posix_fadvise(file->buffered_fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  if (is_cached(*file, kFrom)) GTEST_SKIP() << "this file system keeps its files in memory";
  file->will_need(kFrom, kCount);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_cached(*file, kFrom + kCount - 1) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(is_cached(*file, kFrom));
  EXPECT_TRUE(is_cached(*file, kFrom + kCount - 1));
  EXPECT_FALSE(is_cached(*file, 0)) << "what was not announced is not read";
}

}  // namespace
}  // namespace meron
