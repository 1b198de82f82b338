// SPDX-License-Identifier: Apache-2.0
// Hosts that forbid or lack something: io_uring, its registering, locked memory, descriptors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "../os/child_process.h"
#include "disk.h"
#include "io/swap_file.h"

namespace meron {
namespace {

using test::Bytes;
using test::finish;

class HostLimits : public testing::Test {
 protected:
  void SetUp() override { MERON_NEED_DISK(directory_); }
  const std::string& path() const { return directory_.path(); }
  test::DiskDirectory directory_;
};

// In a child: writes and reads back; 0 when the bytes are equal.
int round_trip(const std::shared_ptr<IoEngine>& engine, const std::string& directory) {
  std::mt19937_64 random(37);
  Bytes from(3'000'000), to(3'000'000);
  from.draw(random);
  engine->register_buffer(from.data(), from.size());
  engine->register_buffer(to.data(), to.size());
  auto made = DirectFile::create(directory);
  CHILD_EXPECT(made.ok());
  const auto file = engine->add(std::move(made).value());
  CHILD_EXPECT(file.ok());
  CHILD_EXPECT(finish(engine->write(*file, 0, from.data(), from.size())).ok());
  CHILD_EXPECT(finish(engine->read(*file, 0, to.data(), to.size())).ok());
  CHILD_EXPECT(std::memcmp(from.data(), to.data(), from.size()) == 0);
  return 0;
}

TEST_F(HostLimits, ForbiddenIoUringIsDoneByThreads) {
  for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    for (const int error : {EPERM, ENOSYS}) {
      EXPECT_EQ(test::run_in_child([&] {
                  CHILD_EXPECT(test::deny_syscall(call, error));
                  CHILD_EXPECT(!IoEngine::create({.backend = test::Backend::uring}).ok());
                  const auto engine = IoEngine::create();
                  CHILD_EXPECT(engine.ok());
                  CHILD_EXPECT((*engine)->backend().starts_with("1 thread ("));
                  CHILD_EXPECT((*engine)->backend().find("io_uring") != std::string::npos);
                  CHILD_EXPECT((*engine)->take_notices().size() == 1);
                  return round_trip(*engine, path());
                }),
                0)
          << call << ' ' << error;
    }
  }
}

TEST_F(HostLimits, ForbiddenRegisteringLeavesIoUring) {
  if (!IoEngine::create({.backend = test::Backend::uring}).ok()) GTEST_SKIP() << "no io_uring";
  EXPECT_EQ(test::run_in_child([&] {
              CHILD_EXPECT(test::deny_syscall(SYS_io_uring_register, EPERM));
              const auto engine = IoEngine::create();
              CHILD_EXPECT(engine.ok());
              CHILD_EXPECT((*engine)->backend() == "io_uring with nothing registered");
              return round_trip(*engine, path());
            }),
            0);
}

TEST_F(HostLimits, WithoutLockedMemoryBuffersAreNotRegistered) {
  if (::geteuid() != 0) GTEST_SKIP() << "takes root, to become somebody else";
  if (!IoEngine::create({.backend = test::Backend::uring}).ok()) GTEST_SKIP() << "no io_uring";
  ASSERT_EQ(::chmod(path().c_str(), 0777), 0);
  const auto notices_under = [&](rlim_t limit, bool with_ring) {
    return test::run_in_child([&] {
      const rlimit little{.rlim_cur = limit, .rlim_max = limit};
      CHILD_EXPECT(::setrlimit(RLIMIT_MEMLOCK, &little) == 0);
      CHILD_EXPECT(::setuid(65534) == 0);
      const auto engine = IoEngine::create();
      CHILD_EXPECT(engine.ok());
      CHILD_EXPECT(!with_ring || (*engine)->backend().starts_with("io_uring"));
      CHILD_EXPECT(round_trip(*engine, path()) == 0);
      const auto notices = (*engine)->take_notices();
      CHILD_EXPECT(notices.size() == 1);
      CHILD_EXPECT(notices[0].find("ulimit -l") != std::string::npos);
      CHILD_EXPECT(!with_ring || notices[0].find("2.9 MiB of memory") != std::string::npos);
      CHILD_EXPECT(!with_ring || notices[0].find("at most 1.0 MiB") != std::string::npos);
      CHILD_EXPECT(round_trip(*engine, path()) == 0);
      CHILD_EXPECT((*engine)->take_notices().empty());
      return 0;
    });
  };
  EXPECT_EQ(notices_under(1 << 20, true), 0);
  // Some kernels count the ring itself: then there is none.
  EXPECT_EQ(notices_under(0, false), 0);
}

// UBSan's own checks take descriptors, and report what they cannot check.
#ifdef __SANITIZE_ADDRESS__
constexpr rlim_t kFewest = 16;
#else
constexpr rlim_t kFewest = 3;
#endif

TEST_F(HostLimits, FewDescriptorsWorkOrSayWhatLacks) {
  for (rlim_t limit = kFewest; limit <= 16; ++limit) {
    EXPECT_EQ(test::run_in_child([&] {
                const rlimit few{.rlim_cur = limit, .rlim_max = limit};
                CHILD_EXPECT(::setrlimit(RLIMIT_NOFILE, &few) == 0);
                const auto engine = IoEngine::create();
                CHILD_EXPECT(engine.ok());
                const auto swap = SwapFile::create(*engine, path());
                if (swap.ok()) return round_trip(*engine, path()) == 0 || limit < 16 ? 0 : 1;
                CHILD_EXPECT(limit < 16);
                CHILD_EXPECT(swap.error().code() == MERON_E_NO_MEMORY);
                CHILD_EXPECT(swap.error().info().advice.find("ulimit -n") != std::string::npos);
                return 0;
              }),
              0)
        << limit;
  }
}

TEST_F(HostLimits, AKilledProcessLeavesNothing) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  test::Child child([&] {
    const auto engine = IoEngine::create();
    CHILD_EXPECT(engine.ok());
    const auto swap = SwapFile::create(*engine, path());
    CHILD_EXPECT(swap.ok());
    CHILD_EXPECT((*swap)->allocate(4 << 20).ok());
    CHILD_EXPECT(::write(ready[1], "x", 1) == 1);
    Bytes bytes(1 << 20);
    for (;;) (void)finish((*engine)->write((*swap)->file(), 0, bytes.data(), bytes.size()));
    return 0;
  });
  char x = 0;
  ASSERT_EQ(::read(ready[0], &x, 1), 1);
  EXPECT_TRUE(directory_.empty()) << "the file has a name";
  child.kill(SIGKILL);
  EXPECT_EQ(child.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(directory_.empty());
  ::close(ready[0]);
  ::close(ready[1]);
}

// A defect in the environment is an error, and not ignored.
TEST_F(HostLimits, AnUnclearFaultPlanIsAnError) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  // The plan is read once in a process, so this is another one, which has not read it yet.
  EXPECT_EQ(::setenv("MERON_IO_FAULTS", "read:one:EIO", 1), 0);
  const std::string command =
      std::filesystem::read_symlink("/proc/self/exe").string() +
      " --gtest_filter=FaultPlanInEnvironment.* --gtest_also_run_disabled_tests >/dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  ::unsetenv("MERON_IO_FAULTS");
}

TEST(FaultPlanInEnvironment, DISABLED_IsRefused) {
  const auto engine = IoEngine::create();
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code(), MERON_E_PARSE);
  EXPECT_EQ(engine.error().info().subject, "MERON_IO_FAULTS");
}

}  // namespace
}  // namespace meron
