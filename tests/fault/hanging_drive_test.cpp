// SPDX-License-Identifier: Apache-2.0
// Drives that do not answer for longer than a call may wait: it ends in time, says so, and nothing
// is lost that the drive may still touch.
#include <ctime>

#include "tests/fault/storage.h"

namespace meron::test {
namespace {

constexpr int64_t kTimeout = kSecond;  // of calls; the drive hangs for three times as long
static_assert(kHangNs >= 3 * kTimeout);

class HangingDrive : public StorageFaults {
 protected:
  void SetUp() override {
    if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
    StorageFaults::SetUp();
  }
  Open open(const std::string& plan) const {
    Open open = open_with(1, plan);
    open.timeout_ns = kTimeout;
    return open;
  }
  // One rank whose drive hangs at this request.
  void run(const std::string& faults, const Job::Main& main) const {
    Job job(1, [&](int rank, Report& report) {
      setenv("MERON_IO_FAULTS", faults.c_str(), 1);
      main(rank, report);
    });
    ASSERT_TRUE(job.wait(60 * kSecond)) << "the rank hangs";
    EXPECT_TRUE(folder_.empty()) << "a file is left";
    EXPECT_TRUE(exited_well(job.status(0)));
    EXPECT_EQ(MERON_OK, job[0].status) << job[0].function << ": " << job[0].message;
    check(job);
  }
  std::function<void(Job&)> check = [](Job&) {};
};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Calls body(), which must fail while the drive does not answer. The drive has five seconds more
// until memory is released that it may write to.
constexpr int64_t kRelease = 5 * kSecond;
template <class Body>
void expect_silent(const std::string& path, const char* function, const Body& body,
                   int64_t more = 0) {
  const int64_t begun = now_ns();
  try {
    body();
    FAIL() << function << " ended well";
  } catch (const CallFailed& failed) {
    EXPECT_EQ(MERON_E_TIMEOUT, failed.status) << failed.message;
    EXPECT_EQ(function, failed.function);
    EXPECT_NE(failed.message.find(path), std::string::npos) << failed.message;
    EXPECT_FALSE(failed.advice.empty());
  }
  EXPECT_GE(now_ns() - begun, kTimeout);
  EXPECT_LT(now_ns() - begun, kHangNs + more);
}

// A rank is another process: its exit status reports its failures.
void tell_failures() {
  if (testing::Test::HasFailure()) _exit(9);
}

TEST_F(HangingDrive, AStepReportsTheRequestThatItWaitsFor) {
  const std::string plan = nvme_plan(path());
  for (const char* faults : {"read:1:hang", "write:12:hang"}) {
    SCOPED_TRACE(faults);
    run(faults, [&](int rank, Report&) {
      Session session(open(plan), rank);
      session.build(kStorageUnits);
      expect_silent(path(), "meron_future_wait", [&] {
        for (int step = 0; step < 3; ++step) train_step(session, step);
      });
      session.close();
      tell_failures();
    });
  }
}

TEST_F(HangingDrive, MakingAnOptimizerSleepsMeanwhile) {
  const std::string plan = nvme_plan(path());
  run("write:3:hang", [&](int rank, Report&) {
    Session session(open(plan), rank);
    const double before = cpu_seconds();
    expect_silent(
        path(), "meron_optimizer_create", [&] { session.build(kStorageUnits); }, kRelease);
    EXPECT_LT(cpu_seconds() - before, 0.5) << "it spins";
    session.close();
    tell_failures();
  });
}

TEST_F(HangingDrive, StatesThatCouldNotBeOffloadedStayInMemory) {
  const std::vector<int64_t> expected = expected_hashes(1);
  check = [&](Job& job) { EXPECT_EQ(expected[0], job[0].times[kHash]); };
  for (const char* faults : {"write:1:hang", "read:1:hang"}) {
    SCOPED_TRACE(faults);
    const bool leaving = faults[0] == 'w';
    run(faults, [&](int rank, Report& report) {
      Session session(open("zero3"), rank);
      session.build(kStorageUnits);
      train_step(session, 0);
      const auto offload = [&] {
        MUST(meron_optimizer_offload, session.optimizer, path().c_str());
      };
      const auto reload = [&] { MUST(meron_optimizer_reload, session.optimizer); };
      if (leaving) {
        expect_silent(path(), "meron_optimizer_offload", offload);
        train_step(session, 1);
      } else {
        offload();
        expect_silent(path(), "meron_optimizer_reload", reload);
      }
      // The drive answers again. Its late writes go to memory and file space that nothing else
      // uses.
      sleep_ns(kHangNs - kTimeout);
      if (leaving) offload();
      reload();
      if (!leaving) train_step(session, 1);
      report.times[kHash] = static_cast<int64_t>(hash_of(session));
      session.close();
      tell_failures();
    });
  }
}

}  // namespace
}  // namespace meron::test
