// SPDX-License-Identifier: Apache-2.0
#include "os/host.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/human_bytes.h"
#include "os/memory_guard.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

TEST(Host, MemoryFiguresAreConsistent) {
  const HostMemory memory = host_memory();
  EXPECT_GT(memory.total, 0u);
  EXPECT_GT(memory.available, 0u);
  EXPECT_LE(memory.available, memory.total);
  // sysconf reads the same figure by another way.
  EXPECT_EQ(memory.total,
            static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size() / 1024 * 1024);
  EXPECT_EQ(memory.cgroup.empty(), memory.cgroup_limit == kNoLimit);
}

TEST(Host, CgroupAvailableDoesNotUnderflow) {
  HostMemory memory;
  EXPECT_EQ(memory.cgroup_available(), kNoLimit);
  memory.cgroup_limit = 100;
  memory.cgroup_used = 30;
  EXPECT_EQ(memory.cgroup_available(), 70u);
  memory.cgroup_used = 130;
  EXPECT_EQ(memory.cgroup_available(), 0u);
}

TEST(Host, RefusesMemoryThatIsNotThere) {
  EXPECT_TRUE(require_memory(0).ok());
  EXPECT_TRUE(require_memory(4096).ok());
  for (const uint64_t bytes : {host_memory().total * 2, kNoLimit / 2, kNoLimit}) {
    const auto refused = require_memory(bytes);
    ASSERT_FALSE(refused.ok()) << bytes;
    EXPECT_EQ(refused.error().code(), MERON_E_NO_MEMORY);
    EXPECT_NE(refused.error().info().what.find(human_bytes(bytes)), std::string::npos);
    EXPECT_FALSE(refused.error().info().advice.empty());
  }
}

TEST(Host, IoUringProbeSaysWhyNot) {
  const IoUringSupport here = io_uring_available();
  EXPECT_NE(here.available, !here.reason.empty());
  const auto denied_with = [](int error, const char* word) {
    return test::run_in_child([=] {
      CHILD_EXPECT(test::deny_syscall(SYS_io_uring_setup, error));
      const IoUringSupport denied = io_uring_available();
      CHILD_EXPECT(!denied.available);
      CHILD_EXPECT(denied.reason.find(word) != std::string::npos);
      return 0;
    });
  };
  EXPECT_EQ(denied_with(EPERM, "EPERM"), 0);
  EXPECT_EQ(denied_with(ENOSYS, "ENOSYS"), 0);
  EXPECT_EQ(denied_with(ENOMEM, "ENOMEM"), 0);
}

TEST(Host, MemlockFollowsTheLimit) {
  EXPECT_EQ(test::run_in_child([] {
              const rlimit limit{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
              CHILD_EXPECT(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
              CHILD_EXPECT(memlock_limit() == 64 << 10);
              return 0;
            }),
            0);
}

TEST(Host, DescribesItself) {
  const CpuInfo cpu = cpu_info();
  EXPECT_FALSE(cpu.brand.empty());
  EXPECT_TRUE(cpu.text().starts_with(cpu.brand));
#if defined(__x86_64__)
  const auto has = [&](std::string_view name) {
    return std::find(cpu.features.begin(), cpu.features.end(), name) != cpu.features.end();
  };
  EXPECT_EQ(has("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(has("avx512f"), __builtin_cpu_supports("avx512f") != 0);
#endif
  EXPECT_FALSE(thp_shmem_mode().empty());
  EXPECT_LE(shm_space().available, shm_space().total);
}

}  // namespace
}  // namespace meron
