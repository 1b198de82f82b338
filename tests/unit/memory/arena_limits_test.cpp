// SPDX-License-Identifier: Apache-2.0
// What an arena does when there is not enough of something: budget, address space, memory.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/layout.h"
#include "memory/arena.h"
#include "memory/reserve.h"
#include "memory/sanitizer.h"
#include "memory/window.h"
#include "os/host.h"
#include "os/process.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

uint64_t address_space_in_use() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * page_size();
}

bool limit_address_space(uint64_t more) {
  const rlim_t most = address_space_in_use() + more;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  return ::setrlimit(RLIMIT_AS, &limit) == 0;
}

TEST(ArenaLimits, TheBudgetIsKeptToTheByte) {
  auto arena = std::move(Arena::create({.reserve = 64 * kMebibyte, .limit = 4 * kPage})).value();
  const auto first = arena->allocate(3 * kPage, MemoryKind::param, "first");
  ASSERT_TRUE(first.ok());
  const auto refused = arena->allocate(kPage + 1, MemoryKind::optimizer, "layer7.exp_avg");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), MERON_E_NO_MEMORY);
  const ErrorInfo& info = refused.error().info();
  EXPECT_EQ(info.subject, "layer7.exp_avg");
  EXPECT_EQ(info.what,
            "cannot allocate 4.0 KiB of optimizer memory: the memory budget of 16.0 KiB has 4.0 "
            "KiB left");
  EXPECT_FALSE(info.advice.empty());
  EXPECT_TRUE(arena->allocate(kPage, MemoryKind::param, "fits").ok());
  EXPECT_FALSE(arena->allocate(1, MemoryKind::param, "full").ok());
  EXPECT_TRUE(arena->allocate(0, MemoryKind::param, "empty").ok());
  arena->release(*first);
  EXPECT_TRUE(arena->allocate(3 * kPage, MemoryKind::param, "again").ok());
  EXPECT_EQ(arena->total_peak(), 4 * kPage);
}

TEST(ArenaLimits, AbsurdSizesAreRefusedWithoutWrappingAround) {
  auto arena = std::move(Arena::create({.reserve = 64 * kMebibyte})).value();
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - kPage, UINT64_MAX / 2, 65 * kMebibyte}) {
    const auto refused = arena->allocate(bytes, MemoryKind::param, "absurd");
    ASSERT_FALSE(refused.ok()) << bytes;
    EXPECT_EQ(refused.error().code(), MERON_E_NO_MEMORY);
    EXPECT_TRUE(contains(refused.error().info().what, "address space of 64.0 MiB"));
  }
  EXPECT_EQ(arena->total_peak(), 0u);
}

TEST(ArenaLimits, MoreThanTheHostHasIsRefusedAndLeavesNothing) {
  // AddressSanitizer fills memory of an eighth of what is reserved.
  const uint64_t total = host_memory().total;
  auto arena = std::move(Arena::create({.reserve = total / 8 * 9})).value();
  const auto refused = arena->allocate(total, MemoryKind::gradient, "bucket 0");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), MERON_E_NO_MEMORY);
  EXPECT_TRUE(contains(refused.error().info().what, "of gradient memory"));
  EXPECT_EQ(arena->total_usage(), 0u);
  EXPECT_EQ(arena->total_peak(), 0u);
  EXPECT_EQ(arena->file().allocated_bytes(), 0u);
  EXPECT_TRUE(arena->allocate(kPage, MemoryKind::gradient, "bucket 1").ok());
}

TEST(ArenaLimits, ARefusalInTheMiddleOfPopulatingIsUndone) {
  EXPECT_EQ(test::run_in_child([] {
              auto arena = std::move(Arena::create({.reserve = 64 * kMebibyte})).value();
              const auto kept = arena->allocate(kPage, MemoryKind::param, "kept");
              CHILD_EXPECT(kept.ok());
              CHILD_EXPECT(test::deny_syscall(SYS_madvise, ENOMEM, 23));  // MADV_POPULATE_WRITE
              const auto refused = arena->allocate(kMebibyte, MemoryKind::param, "refused");
              CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_NO_MEMORY);
              CHILD_EXPECT(contains(refused.error().info().what, "ENOMEM"));
              CHILD_EXPECT(arena->total_usage() == kPage && arena->total_peak() == kPage);
              CHILD_EXPECT(arena->file().allocated_bytes() == round_up(kPage, page_size()));
              return 0;
            }),
            0);
}

TEST(ArenaLimits, PromisesThatTheHostCannotKeepAreRefusedTogether) {
  const uint64_t available = host_memory().available;
  auto arena = std::move(Arena::create({.reserve = host_memory().total / 2 * 3})).value();
  const uint64_t piece = available / 5 * 2;
  const auto first = arena->promise(piece, MemoryKind::gradient, "first");
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(arena->promise(piece, MemoryKind::gradient, "second").ok());
  const auto refused = arena->promise(piece, MemoryKind::gradient, "third");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), MERON_E_NO_MEMORY);
  EXPECT_EQ(refused.error().info().subject, "third");
  EXPECT_TRUE(contains(refused.error().info().what, "with all that gradients will take"));
  EXPECT_FALSE(arena->allocate(piece, MemoryKind::optimizer, "states").ok());
  EXPECT_TRUE(contains(refused.error().info().what, "of gradient memory"));
  EXPECT_EQ(arena->total_usage(), 2 * footprint(piece));
  EXPECT_EQ(arena->file().allocated_bytes(), 0u);
  arena->release(*first);
  EXPECT_TRUE(arena->promise(piece, MemoryKind::gradient, "third").ok());
}

TEST(ArenaLimits, PromisesKeepToTheBudget) {
  auto arena = std::move(Arena::create({.reserve = 64 * kMebibyte, .limit = 4 * kPage})).value();
  ASSERT_TRUE(arena->promise(3 * kPage, MemoryKind::gradient, "first").ok());
  const auto refused = arena->promise(kPage + 1, MemoryKind::gradient, "second");
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(contains(refused.error().info().what, "the memory budget of 16.0 KiB"));
  EXPECT_FALSE(arena->allocate(kPage + 1, MemoryKind::param, "third").ok());
  EXPECT_FALSE(arena->promise(UINT64_MAX, MemoryKind::gradient, "absurd").ok());
  EXPECT_TRUE(arena->allocate(kPage, MemoryKind::param, "fits").ok());
}

TEST(ArenaLimits, AProvisionThatIsRefusedMayBeRepeated) {
  EXPECT_EQ(test::run_in_child([] {
              auto arena = std::move(Arena::create({.reserve = 64 * kMebibyte})).value();
              const auto kept = arena->promise(kMebibyte, MemoryKind::gradient, "the sum");
              CHILD_EXPECT(kept.ok());
              CHILD_EXPECT(test::deny_syscall(SYS_madvise, ENOMEM, 23));  // MADV_POPULATE_WRITE
              for (int attempt = 0; attempt < 2; ++attempt) {
                const auto refused = arena->provide(*kept, "the sum");
                CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_NO_MEMORY);
                CHILD_EXPECT(contains(refused.error().info().what, "ENOMEM"));
                CHILD_EXPECT(refused.error().info().subject == "the sum");
              }
              CHILD_EXPECT(arena->total_usage() == footprint(kMebibyte));
              arena->release(*kept);
              CHILD_EXPECT(arena->total_usage() == 0);
              return 0;
            }),
            0);
}

TEST(ArenaLimits, TakesLessAddressSpaceWhereThatIsLimited) {
  EXPECT_EQ(test::run_in_child([] {
              CHILD_EXPECT(limit_address_space(1200 * kMebibyte));
              const auto arena = Arena::create({.reserve = 24ull << 30});
              CHILD_EXPECT(arena.ok());
              // Twice, because it is mapped twice.
              CHILD_EXPECT((*arena)->size() == (kThreadSanitizer ? 768 : 384) * kMebibyte);
              CHILD_EXPECT((*arena)->allocate(kMebibyte, MemoryKind::param, "x").ok());
              return 0;
            }),
            0);
}

TEST(ArenaLimits, TooLittleAddressSpaceIsAClearError) {
  EXPECT_EQ(test::run_in_child([] {
              CHILD_EXPECT(limit_address_space(kLeastReserve));
              const auto arena = Arena::create({.reserve = 24ull << 30});
              CHILD_EXPECT(!arena.ok() && arena.error().code() == MERON_E_NO_MEMORY);
              CHILD_EXPECT(contains(arena.error().info().what, "limit on address space"));
              CHILD_EXPECT(contains(arena.error().info().advice, "ulimit -v"));
              const auto window = Window::create(24ull << 30);
              CHILD_EXPECT(!window.ok() && window.error().code() == MERON_E_NO_MEMORY);
              return 0;
            }),
            0);
}

TEST(ArenaLimits, TakesLessWhereFileSizesAreLimited) {
  EXPECT_EQ(test::run_in_child([] {
              const rlimit limit{.rlim_cur = 1ull << 30, .rlim_max = 1ull << 30};
              CHILD_EXPECT(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
              const auto arena = Arena::create({.reserve = 24ull << 30});
              CHILD_EXPECT(arena.ok() && (*arena)->size() == 768 * kMebibyte);
              return 0;
            }),
            0);
}

TEST(ArenaLimits, ASmallDevShmDoesNotMatter) {
  constexpr int kCannot = 150;
  const int status = test::run_in_child([] {
    if (::unshare(CLONE_NEWNS) != 0) return kCannot;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kCannot;
    if (::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0) return kCannot;
    CHILD_EXPECT(shm_space().total == 64 << 10);
    auto arena = Arena::create({.reserve = 256 * kMebibyte});
    CHILD_EXPECT(arena.ok());
    const auto buffer = (*arena)->allocate(20 * kMebibyte, MemoryKind::param, "x");
    CHILD_EXPECT(buffer.ok());
    std::memset(buffer->data, 1, buffer->bytes);
    return 0;
  });
  if (status == kCannot) GTEST_SKIP() << "needs the right to mount a /dev/shm of its own";
  EXPECT_EQ(status, 0);
}

// A memory cgroup below this process' own, with a limit; gone at the end.
class Cgroup {
 public:
  explicit Cgroup(uint64_t limit) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const size_t v1 = line.find(":memory:");
      if (v1 != std::string::npos) make("/sys/fs/cgroup/memory" + line.substr(v1 + 8), limit);
      if (line.starts_with("0::")) make("/sys/fs/cgroup" + line.substr(3), limit);
    }
  }
  ~Cgroup() {
    if (!directory_.empty()) ::rmdir(directory_.c_str());
  }
  bool valid() const { return !directory_.empty(); }
  bool join() const {
    std::ofstream tasks(directory_ + "/cgroup.procs");
    tasks << process_id() << std::flush;
    return tasks.good();
  }

 private:
  void make(const std::string& parent, uint64_t limit) {
    if (valid()) return;
    const std::string directory = parent + "/meron-test-" + std::to_string(process_id());
    if (::mkdir(directory.c_str(), 0755) != 0) return;
    for (const char* name : {"/memory.limit_in_bytes", "/memory.max"}) {
      if (::access((directory + name).c_str(), W_OK) != 0) continue;
      std::ofstream file(directory + name);
      file << limit << std::flush;
      if (file.good()) directory_ = directory;
    }
    if (!valid()) ::rmdir(directory.c_str());
  }

  std::string directory_;
};

TEST(ArenaLimits, AMemoryCgroupIsAnErrorAndNotAKill) {
  const Cgroup cgroup(64 * kMebibyte);
  if (!cgroup.valid()) GTEST_SKIP() << "needs the right to make a memory cgroup";
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(cgroup.join());
              CHILD_EXPECT(host_memory().cgroup_limit == 64 * kMebibyte);
              auto arena = Arena::create({.reserve = 1ull << 30});
              CHILD_EXPECT(arena.ok());
              const auto refused = (*arena)->allocate(200 * kMebibyte, MemoryKind::optimizer, "m");
              CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_NO_MEMORY);
              CHILD_EXPECT(contains(refused.error().info().what, "memory cgroup"));
              CHILD_EXPECT(contains(refused.error().info().what, "64.0 MiB"));
              // Filled in small steps it ends in an error, too. (A sanitizer's shadow uses memory
              // of the cgroup, outside of the arena.)
              if (kThreadSanitizer || kAddressSanitizer) return 0;
              uint64_t filled = 0;
              for (;; filled += kMebibyte) {
                const auto step = (*arena)->allocate(kMebibyte, MemoryKind::optimizer, "step");
                if (!step.ok()) break;
                std::memset(step->data, 1, step->bytes);
              }
              CHILD_EXPECT(filled >= 16 * kMebibyte && filled < 64 * kMebibyte);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace meron
