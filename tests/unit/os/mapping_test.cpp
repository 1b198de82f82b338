// SPDX-License-Identifier: Apache-2.0
#include "os/mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/human_bytes.h"
#include "os/host.h"
#include "os/memory_file.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint32_t kPopulateWrite = 23;  // MADV_POPULATE_WRITE

struct Mapped {
  MemoryFile file;
  Mapping mapping;

  explicit Mapped(uint64_t bytes, Access access = Access::read_write) {
    file = std::move(MemoryFile::create("mapping_test", bytes)).value();
    mapping = std::move(Mapping::map_file(file.fd(), bytes, access)).value();
  }
};

bool all_are(const std::byte* data, size_t bytes, int value) {
  return std::all_of(data, data + bytes, [=](std::byte b) { return b == std::byte(value); });
}

template <class T>
meron_status code_of(const Result<T>& result) {
  return result.ok() ? MERON_OK : result.error().code();
}

TEST(Mapping, IsAlignedToHugePagesAndCostsNothing) {
  Mapped big(24ull << 30);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(big.mapping.data()) % kHugePage, 0u);
  EXPECT_EQ(big.mapping.size(), 24ull << 30);
  EXPECT_EQ(big.file.allocated_bytes(), 0u);
}

TEST(Mapping, PopulateMakesExactlyThePagesOfTheRange) {
  Mapped m(64 * kMiB);
  const uint64_t page = page_size();
  ASSERT_TRUE(m.mapping.populate(5 * page + 1, 2 * page).ok());  // touches three pages
  EXPECT_EQ(m.file.hole_bytes(5 * page, 3 * page), 0u);
  EXPECT_EQ(m.file.allocated_bytes(), 3 * page);
  ASSERT_TRUE(m.mapping.populate(10 * kMiB + page, 9 * kMiB).ok());
  EXPECT_EQ(m.file.hole_bytes(10 * kMiB + page, 9 * kMiB), 0u);
  EXPECT_EQ(m.file.allocated_bytes(), 3 * page + 9 * kMiB);
  EXPECT_TRUE(all_are(m.mapping.data() + 10 * kMiB, 10 * kMiB, 0));
}

TEST(Mapping, PopulateNeverChangesWhatIsThere) {
  Mapped m(4 * kMiB);
  ASSERT_TRUE(m.mapping.populate(kMiB, kMiB).ok());
  std::memset(m.mapping.data() + kMiB, 7, kMiB);
  ASSERT_TRUE(m.mapping.populate(0, 4 * kMiB).ok());
  EXPECT_TRUE(all_are(m.mapping.data(), kMiB, 0));
  EXPECT_TRUE(all_are(m.mapping.data() + kMiB, kMiB, 7));
  EXPECT_TRUE(all_are(m.mapping.data() + 2 * kMiB, 2 * kMiB, 0));
}

TEST(Mapping, DiscardReturnsWholePagesInsideTheRange) {
  Mapped m(kMiB);
  const uint64_t page = page_size();
  ASSERT_TRUE(m.mapping.populate(0, kMiB).ok());
  std::memset(m.mapping.data(), 7, kMiB);
  ASSERT_TRUE(m.mapping.discard(page - 1, 2 * page + 2).ok());
  EXPECT_EQ(m.file.allocated_bytes(), kMiB - 2 * page);
  EXPECT_TRUE(all_are(m.mapping.data(), page, 7));
  EXPECT_TRUE(all_are(m.mapping.data() + page, 2 * page, 0));
  EXPECT_TRUE(all_are(m.mapping.data() + 3 * page, kMiB - 3 * page, 7));
}

TEST(Mapping, ReadersSeeWritersAndKeepTheFileAlive) {
  Mapping reader;
  {
    Mapped writer(kMiB);
    auto mapped = Mapping::map_file(writer.file.fd(), kMiB, Access::read);
    ASSERT_TRUE(mapped.ok());
    reader = std::move(*mapped);
    ASSERT_TRUE(writer.mapping.populate(0, kMiB).ok());
    std::memset(writer.mapping.data(), 9, kMiB);
  }
  reader.prefault(0, kMiB);
  EXPECT_TRUE(all_are(reader.data(), kMiB, 9));
}

TEST(Mapping, AWriteThroughAReadOnlyMappingFaults) {
  Mapped m(4096, Access::read);
  EXPECT_EQ(test::run_in_child([&] {
              ::signal(SIGSEGV, SIG_DFL);
              *static_cast<volatile std::byte*>(m.mapping.data()) = std::byte{1};
              return 0;
            }),
            1000 + SIGSEGV);
}

TEST(Mapping, RefusesBadRanges) {
  Mapped m(kMiB);
  EXPECT_EQ(code_of(m.mapping.populate(kMiB, 1)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(m.mapping.populate(1, kMiB)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(m.mapping.populate(1, SIZE_MAX)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(m.mapping.discard(SIZE_MAX, 1)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(m.mapping.populate(kMiB, 0)), MERON_OK);
  m.mapping.prefault(SIZE_MAX, SIZE_MAX);
  Mapped reader(kMiB, Access::read);
  EXPECT_EQ(code_of(reader.mapping.populate(0, 1)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(reader.mapping.discard(0, 1)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(Mapping::map_file(m.file.fd(), 0, Access::read)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(Mapping::map_file(m.file.fd(), SIZE_MAX, Access::read)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(Mapping::map_file(-1, kMiB, Access::read)), MERON_E_IO);
}

TEST(Mapping, MoreThanTheHostHasIsRefusedWithFigures) {
  const uint64_t need = host_memory().total * 2;
  Mapped m(need);
  const auto refused = m.mapping.populate(0, need);
  ASSERT_EQ(code_of(refused), MERON_E_NO_MEMORY);
  EXPECT_NE(refused.error().info().what.find(human_bytes(need)), std::string::npos);
  EXPECT_EQ(m.file.allocated_bytes(), 0u);
}

TEST(Mapping, WorksWithoutPopulateWrite) {
  EXPECT_EQ(test::run_in_child([] {
              CHILD_EXPECT(test::deny_syscall(SYS_madvise, EINVAL, kPopulateWrite));
              Mapped m(100 * kMiB);
              CHILD_EXPECT(m.mapping.populate(kMiB, 70 * kMiB).ok());
              CHILD_EXPECT(m.file.allocated_bytes() == 70 * kMiB);
              CHILD_EXPECT(all_are(m.mapping.data() + kMiB, 70 * kMiB, 0));
              std::memset(m.mapping.data() + kMiB, 5, kMiB);
              CHILD_EXPECT(m.mapping.populate(0, 3 * kMiB).ok());
              CHILD_EXPECT(all_are(m.mapping.data() + kMiB, kMiB, 5));
              return 0;
            }),
            0);
}

TEST(Mapping, ARefusalOfTheKernelIsAnError) {
  for (const int error : {ENOMEM, EFAULT, EIO}) {
    EXPECT_EQ(test::run_in_child([=] {
                CHILD_EXPECT(test::deny_syscall(SYS_madvise, error, kPopulateWrite));
                Mapped m(kMiB);
                const auto refused = m.mapping.populate(0, kMiB);
                CHILD_EXPECT(code_of(refused) == (error == EIO ? MERON_E_IO : MERON_E_NO_MEMORY));
                return 0;
              }),
              0);
  }
}

TEST(Mapping, ALimitOnAddressSpaceIsAClearError) {
  EXPECT_EQ(test::run_in_child([] {
              uint64_t pages = 0;
              std::ifstream("/proc/self/statm") >> pages;
              const rlim_t most = pages * page_size() + 64 * kMiB;
              const rlimit limit{.rlim_cur = most, .rlim_max = most};
              auto file = MemoryFile::create("mapping_test", 1ull << 30);
              CHILD_EXPECT(file.ok());
              CHILD_EXPECT(::setrlimit(RLIMIT_AS, &limit) == 0);
              const auto refused = Mapping::map_file(file->fd(), 1ull << 30, Access::read);
              CHILD_EXPECT(code_of(refused) == MERON_E_NO_MEMORY);
              CHILD_EXPECT(refused.error().info().advice.find("ulimit -v") != std::string::npos);
              CHILD_EXPECT(Mapping::map_file(file->fd(), 16 * kMiB, Access::read).ok());
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace meron
