// SPDX-License-Identifier: Apache-2.0
#include "os/private_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "base/human_bytes.h"
#include "os/host.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

constexpr size_t kMega = 1 << 20;
constexpr uint32_t kPopulate = 23;  // MADV_POPULATE_WRITE

meron_status code_of(const Result<PrivateMemory>& result) {
  return result.ok() ? MERON_OK : result.error().code();
}

bool all_zero(const PrivateMemory& memory) {
  return std::all_of(memory.data(), memory.data() + memory.size(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

// Of the pages of a range, how many have memory.
size_t resident_pages(const PrivateMemory& memory) {
  std::vector<unsigned char> pages(memory.size() / page_size());
  if (::mincore(memory.data(), memory.size(), pages.data()) != 0) return 0;
  return static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(PrivateMemory, IsZeroAndThereAndAlignedToAHugePage) {
  const auto memory = PrivateMemory::create(3 * kMega + 1);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % kHugePage, 0u);
  EXPECT_EQ(memory->size(), 3 * kMega + page_size());
  EXPECT_EQ(resident_pages(*memory), memory->size() / page_size());
  EXPECT_TRUE(all_zero(*memory));
}

TEST(PrivateMemory, GoesWithItsOwner) {
  auto first = PrivateMemory::create(kMega);
  ASSERT_TRUE(first.ok());
  std::byte* const place = first->data();
  std::optional<PrivateMemory> second(std::move(*first));
  EXPECT_FALSE(first->valid());
  EXPECT_EQ(second->data(), place);
  std::memset(place, 7, kMega);
  second.reset();
  unsigned char page = 0;
  EXPECT_EQ(::mincore(place, page_size(), &page), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(PrivateMemory, AForkedChildHasNoneOfIt) {
  auto memory = PrivateMemory::create(kMega);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(test::run_in_child([&] {
              unsigned char page = 0;
              CHILD_EXPECT(::mincore(memory->data(), page_size(), &page) == -1);
              // Its destructor leaves what the child has at the address.
              void* const other = ::mmap(memory->data(), kMega, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
              CHILD_EXPECT(other == memory->data());
              *memory = PrivateMemory();
              *static_cast<volatile char*>(other) = 1;
              return 0;
            }),
            0);
  EXPECT_TRUE(all_zero(*memory));
}

TEST(PrivateMemory, RefusesBadSizes) {
  EXPECT_EQ(code_of(PrivateMemory::create(0)), MERON_E_ARGUMENT);
  EXPECT_EQ(code_of(PrivateMemory::create(SIZE_MAX)), MERON_E_ARGUMENT);
  const uint64_t need = host_memory().total * 2;
  const auto refused = PrivateMemory::create(need);
  ASSERT_EQ(code_of(refused), MERON_E_NO_MEMORY);
  EXPECT_NE(refused.error().info().what.find(human_bytes(need)), std::string::npos);
}

TEST(PrivateMemory, WorksWithoutWhatOlderKernelsLack) {
  EXPECT_EQ(test::run_in_child([] {
              CHILD_EXPECT(test::deny_syscall(SYS_madvise, EINVAL, kPopulate));
              const auto memory = PrivateMemory::create(2 * kMega);
              CHILD_EXPECT(memory.ok());
              CHILD_EXPECT(resident_pages(*memory) == 2 * kMega / page_size());
              return 0;
            }),
            0);
}

TEST(PrivateMemory, ARefusalOfTheKernelIsAnError) {
  for (const int error : {ENOMEM, EFAULT, EIO}) {
    EXPECT_EQ(test::run_in_child([=] {
                CHILD_EXPECT(test::deny_syscall(SYS_madvise, error, kPopulate));
                const auto refused = PrivateMemory::create(kMega);
                CHILD_EXPECT(code_of(refused) == (error == EIO ? MERON_E_IO : MERON_E_NO_MEMORY));
                return 0;
              }),
              0);
  }
}

TEST(PrivateMemory, ALimitOnAddressSpaceIsAClearError) {
  EXPECT_EQ(test::run_in_child([] {
              uint64_t pages = 0;
              std::ifstream("/proc/self/statm") >> pages;
              const rlim_t most = pages * page_size() + 64 * kMega;
              const rlimit limit{.rlim_cur = most, .rlim_max = most};
              CHILD_EXPECT(::setrlimit(RLIMIT_AS, &limit) == 0);
              const auto refused = PrivateMemory::create(256 * kMega);
              CHILD_EXPECT(code_of(refused) == MERON_E_NO_MEMORY);
              CHILD_EXPECT(refused.error().info().advice.find("ulimit -v") != std::string::npos);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace meron
