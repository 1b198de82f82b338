// SPDX-License-Identifier: Apache-2.0
// Hosts that forbid, limit or lack what states on a drive take: training goes on as it can, with
// the same bits, or says what lacks it.
#include <sys/resource.h>
#include <sys/syscall.h>

#include "tests/fault/storage.h"
#include "tests/unit/os/child_process.h"

namespace meron::test {
namespace {

using StorageLimits = StorageFaults;

TEST_F(StorageLimits, ForbiddenIoUringChangesNoBit) {
  for (const int ranks : {1, 2}) {
    const Open open = open_with(ranks, nvme_plan(path()));
    Job job(ranks, [&](int rank, Report& report) {
      if (!deny_syscall(SYS_io_uring_setup, EPERM)) _exit(6);
      train(open, rank, report);
    });
    ASSERT_TRUE(job.wait(60 * kSecond)) << "a rank hangs";
    expect_equal_bits(job, expected_hashes(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(1, job[rank].numbers[kWarnings]) << job[rank].note;
      EXPECT_NE(nullptr, std::strstr(job[rank].note, "io_uring")) << job[rank].note;
    }
  }
}

TEST_F(StorageLimits, WithoutLockedMemoryThereIsOneNotice) {
  if (geteuid() != 0) GTEST_SKIP() << "takes root, to become somebody else";
  ASSERT_EQ(0, chmod(path().c_str(), 0777));
  const Open open = open_with(1, nvme_plan(path()));
  Job job(1, [&](int rank, Report& report) {
    const rlimit little{.rlim_cur = 4096, .rlim_max = 4096};
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || setuid(65534) != 0) _exit(6);
    train(open, rank, report);
  });
  ASSERT_TRUE(job.wait(60 * kSecond));
  expect_equal_bits(job, expected_hashes(1));
  EXPECT_EQ(1, job[0].numbers[kWarnings]) << job[0].note;
  EXPECT_NE(nullptr, std::strstr(job[0].note, "ulimit -l")) << job[0].note;
}

TEST_F(StorageLimits, FewDescriptorsWorkOrReportTheLimit) {
  const std::vector<int64_t> expected = expected_hashes(1);
  // Beyond those that the program was started with. A sanitizer takes some for its own checks.
  const auto inherited = static_cast<rlim_t>(open_descriptors());
  for (rlim_t few = kSanitized ? 12 : 2; few <= 20; few += 2) {
    const rlim_t limit = inherited + few;
    SCOPED_TRACE(limit);
    const Open open = open_with(1, nvme_plan(path()));
    Job job(1, [&](int rank, Report& report) {
      const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
      report.numbers[3] = open_descriptors();
      if (setrlimit(RLIMIT_NOFILE, &limits) != 0) _exit(6);
      train(open, rank, report);
    });
    ASSERT_TRUE(job.wait(60 * kSecond));
    if (job[0].status == MERON_OK) {
      expect_equal_bits(job, expected);
      continue;
    }
    if (!exited_well(job.status(0))) {
      // Too few for the test itself, which cannot count what it has open.
      EXPECT_TRUE(WIFEXITED(job.status(0)) && few < 12) << "status " << job.status(0);
      continue;
    }
    EXPECT_LT(few, 16u) << job[0].message;
    EXPECT_EQ(MERON_E_NO_MEMORY, job[0].status) << job[0].message;
    EXPECT_NE(nullptr, std::strstr(job[0].advice, "ulimit -n")) << job[0].advice;
    expect_nothing_open(job);
  }
}

using StorageFolders = StorageFaults;

// Creates an optimizer with states in `folder`, on each of two ranks, and expects an error.
void expect_refused(const std::string& folder, meron_status status, const char* why,
                    bool as_nobody = false) {
  SCOPED_TRACE(folder);
  const Open open = open_with(2, nvme_plan(folder));
  Job job(2, [&](int rank, Report& report) {
    if (as_nobody && setuid(65534) != 0) _exit(6);
    with_session(open, rank, report, [&](Session& session) { session.build(); });
  });
  ASSERT_TRUE(job.wait(30 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(job[rank].message);
    EXPECT_EQ(status, job[rank].status);
    // A slow rank gets the error from its first call.
    if (std::strstr(job[rank].message, "found by") == nullptr) {
      EXPECT_STREQ("meron_optimizer_create", job[rank].function);
    }
    EXPECT_NE(nullptr, std::strstr(job[rank].message, folder.c_str()));
    EXPECT_NE(nullptr, std::strstr(job[rank].message, why));
    EXPECT_NE('\0', job[rank].advice[0]) << "does not say what to do";
  }
  expect_nothing_open(job);
}

TEST_F(StorageFolders, ThatAreUnusableAreNamedWithARemedy) {
  expect_refused(path() + "/none", MERON_E_NOT_FOUND, "ENOENT");
  const std::string file = path() + "/file";
  std::fclose(std::fopen(file.c_str(), "w"));
  expect_refused(file, MERON_E_ARGUMENT, "no directory");
  expect_refused(file + "/below", MERON_E_IO, "ENOTDIR");
  struct statfs system {};
  if (statfs("/dev/shm", &system) == 0 && system.f_type == TMPFS_MAGIC) {
    expect_refused("/dev/shm", MERON_E_ARGUMENT, "in memory");
  }
  if (geteuid() == 0) {
    ASSERT_EQ(0, chmod(path().c_str(), 0755));
    expect_refused(path(), MERON_E_ARGUMENT, "may not be written", true);
  }
}

TEST_F(StorageFolders, PlansThatCannotWorkAreRefusedAtOnce) {
  for (const char* optimizer :
       {R"("sub_group": 0)", R"("buffers": 1)", R"("buffers": 0)", R"("fraction": 0)"}) {
    const std::string plan = std::string(R"({"preset": "zero3", "optimizer": {"tier": "nvme", )") +
                             optimizer + R"(}, "nvme": {"path": ")" + path() + "\"}}";
    Job job(1, [&](int, Report&) {
      meron_plan parsed{};
      MUST(meron_plan_parse, &parsed, plan.data(), plan.size());
    });
    ASSERT_TRUE(job.wait(30 * kSecond));
    EXPECT_EQ(MERON_E_PARSE, job[0].status) << optimizer << ": " << job[0].message;
    const std::string key(optimizer + 1, std::strchr(optimizer + 1, '"'));
    EXPECT_NE(nullptr, std::strstr(job[0].message, key.c_str())) << job[0].message;
  }
}

constexpr int kCannotMount = 7;

// A drive of 16 MiB in this process' own sight.
void mount_small_drive(const std::string& folder) {
  const std::string command =
      "cd " + folder + " && truncate -s 16M image && mkfs.ext4 -q -F -O ^has_journal image && " +
      "mkdir mount && mount -o loop image mount >/dev/null 2>&1";
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      std::system(command.c_str()) != 0) {
    _exit(kCannotMount);
  }
}

// All that is free, but for less than `left`.
void fill(const std::string& file, off_t left) {
  const int fd = open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  off_t size = 0;
  for (off_t piece = 1 << 20; piece >= 4096;) {
    if (fallocate(fd, 0, size, piece) == 0) {
      size += piece;
    } else {
      piece /= 2;
    }
  }
  (void)!ftruncate(fd, size - left);
  close(fd);
}

TEST_F(StorageFolders, ThatAreFullReportItAndAllowARetry) {
  if (geteuid() != 0) GTEST_SKIP() << "takes root, to mount";
  const std::vector<int64_t> expected = expected_hashes(1);
  // Not one page, and some: too few for the states.
  for (const off_t left : {0, 16384}) {
    SCOPED_TRACE(left);
    DriveFolder folder;
    const std::string drive = folder.path() + "/mount";
    const Open open = open_with(1, nvme_plan(drive));
    Job job(1, [&](int rank, Report& report) {
      mount_small_drive(folder.path());
      fill(drive + "/other", left);
      with_session(open, rank, report, [&](Session& session) {
        try {
          session.build(kStorageUnits);
        } catch (const CallFailed& failed) {
          record(report, failed);
          report.numbers[3] = failed.status;
          report.status = MERON_OK;
        }
        unlink((drive + "/other").c_str());
        session.make_optimizer();
        for (int step = 0; step < 2; ++step) train_step(session, step);
        report.times[kHash] = static_cast<int64_t>(hash_of(session));
      });
      report.numbers[4] = 0;
      for (const auto& each : std::filesystem::directory_iterator(drive)) {
        if (each.path().filename() != "lost+found") ++report.numbers[4];
      }
    });
    ASSERT_TRUE(job.wait(60 * kSecond));
    if (WIFEXITED(job.status(0)) && WEXITSTATUS(job.status(0)) == kCannotMount) {
      GTEST_SKIP() << "cannot mount a file system on a loop device";
    }
    EXPECT_EQ(MERON_E_NO_SPACE, job[0].numbers[3]) << job[0].message;
    EXPECT_STREQ("meron_optimizer_create", job[0].function);
    EXPECT_NE(nullptr, std::strstr(job[0].message, drive.c_str())) << job[0].message;
    EXPECT_NE(nullptr, std::strstr(job[0].message, "are needed")) << job[0].message;
    EXPECT_NE(nullptr, std::strstr(job[0].advice, "free some space")) << job[0].advice;
    EXPECT_EQ(0, job[0].numbers[4]) << "a file is left";
    expect_equal_bits(job, expected);
  }
}

}  // namespace
}  // namespace meron::test
