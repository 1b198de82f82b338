// SPDX-License-Identifier: Apache-2.0
#include "os/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "os/host.h"
#include "os/process.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

meron_status adopting(UniqueFd fd, uint64_t expected = 0) {
  const auto result = MemoryFile::adopt(std::move(fd), expected);
  return result.ok() ? MERON_OK : result.error().code();
}

UniqueFd bare_memfd(uint64_t bytes, int seals) {
  UniqueFd fd(::memfd_create("bare", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(MemoryFile, IsSparse) {
  const auto file = MemoryFile::create("memory_file_test", 64ull << 30);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), 64ull << 30);
  EXPECT_EQ(file->allocated_bytes(), 0u);
  EXPECT_EQ(::fcntl(file->fd(), F_GETFD), FD_CLOEXEC);
}

TEST(MemoryFile, RoundsUpToPages) {
  const auto file = MemoryFile::create("memory_file_test", 1);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), page_size());
  EXPECT_FALSE(MemoryFile::create("memory_file_test", 0).ok());
  EXPECT_FALSE(MemoryFile::create("memory_file_test", UINT64_MAX).ok());
}

TEST(MemoryFile, NoHolderCanChangeItsSize) {
  const auto file = MemoryFile::create("memory_file_test", 1 << 20);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(test::run_in_child([&] {
              for (const off_t bytes : {0, 4096, 2 << 20}) {
                CHILD_EXPECT(::ftruncate(file->fd(), bytes) == -1 && errno == EPERM);
              }
              // Through a new open file of it, too; and it can neither be unsealed nor sealed on.
              const std::string path = "/proc/self/fd/" + std::to_string(file->fd());
              const UniqueFd again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
              CHILD_EXPECT(again.valid());
              CHILD_EXPECT(::ftruncate(again.get(), 0) == -1 && errno == EPERM);
              CHILD_EXPECT(::fcntl(again.get(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
              return 0;
            }),
            0);
  EXPECT_EQ(::lseek(file->fd(), 0, SEEK_END), 1 << 20);
}

TEST(MemoryFile, AdoptsWhatAPeerMade) {
  const auto file = MemoryFile::create("memory_file_test", 1 << 20);
  ASSERT_TRUE(file.ok());
  const auto adopted = MemoryFile::adopt(UniqueFd(::dup(file->fd())), 1 << 20);
  ASSERT_TRUE(adopted.ok());
  EXPECT_EQ(adopted->size(), 1u << 20);
  EXPECT_EQ(adopting(UniqueFd(::dup(file->fd())), 2 << 20), MERON_E_MISMATCH);
}

TEST(MemoryFile, AdoptsNothingElse) {
  const int both = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_EQ(adopting(bare_memfd(4096, both)), MERON_OK);
  EXPECT_EQ(adopting(bare_memfd(4096, F_SEAL_SHRINK)), MERON_E_AUTH);
  EXPECT_EQ(adopting(bare_memfd(4096, F_SEAL_GROW)), MERON_E_AUTH);
  EXPECT_EQ(adopting(bare_memfd(0, both)), MERON_E_MISMATCH);
  EXPECT_EQ(adopting(bare_memfd(4097, both)), MERON_E_MISMATCH);
  EXPECT_EQ(adopting(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))), MERON_E_AUTH);
  EXPECT_EQ(adopting(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))), MERON_E_AUTH);
  EXPECT_EQ(adopting(UniqueFd()), MERON_E_AUTH);
}

TEST(MemoryFile, AdoptsNothingOfAnotherUser) {
  if (effective_uid() != 0) GTEST_SKIP() << "needs root, to become another user";
  EXPECT_EQ(test::run_in_child([] {
              CHILD_EXPECT(::seteuid(65534) == 0);
              auto file = MemoryFile::create("memory_file_test", 4096);
              CHILD_EXPECT(file.ok());
              CHILD_EXPECT(::seteuid(0) == 0);
              CHILD_EXPECT(adopting(UniqueFd(::dup(file->fd()))) == MERON_E_AUTH);
              return 0;
            }),
            0);
}

TEST(MemoryFile, ALimitOnFileSizesIsAnErrorAndNoSignal) {
  EXPECT_EQ(test::run_in_child([] {
              const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
              CHILD_EXPECT(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
              CHILD_EXPECT(MemoryFile::create("memory_file_test", 1 << 20).ok());
              const auto file = MemoryFile::create("memory_file_test", (1 << 20) + 1);
              CHILD_EXPECT(!file.ok() && file.error().code() == MERON_E_NO_MEMORY);
              CHILD_EXPECT(file.error().info().advice.find("ulimit -f") != std::string::npos);
              return 0;
            }),
            0);
}

TEST(MemoryFile, KnowsItsHoles) {
  const auto file = MemoryFile::create("memory_file_test", 64 * page_size());
  ASSERT_TRUE(file.ok());
  const uint64_t page = page_size();
  EXPECT_EQ(file->hole_bytes(0, file->size()), file->size());
  for (const uint64_t at : {0, 5, 6, 63}) {
    ASSERT_EQ(::pwrite(file->fd(), "x", 1, static_cast<off_t>(at * page)), 1);
  }
  EXPECT_EQ(file->allocated_bytes(), 4 * page);
  EXPECT_EQ(file->hole_bytes(0, file->size()), 60 * page);
  EXPECT_EQ(file->hole_bytes(0, page), 0u);
  EXPECT_EQ(file->hole_bytes(page, 4 * page), 4 * page);
  EXPECT_EQ(file->hole_bytes(page, 5 * page), 4 * page);
  EXPECT_EQ(file->hole_bytes(7 * page, 57 * page), 56 * page);
  EXPECT_EQ(file->hole_bytes(7 * page, 0), 0u);
}

}  // namespace
}  // namespace meron
