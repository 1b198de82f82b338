// SPDX-License-Identifier: Apache-2.0
// Drives that fail, lie or lose their process while states on them are trained with: a run ends
// with the right bits, or every rank gets the failure and its rank.
#include "tests/fault/storage.h"

namespace meron::test {
namespace {

#define MERON_NEED_FAULT_POINTS() \
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points"

bool says(const Report& report, const std::string& text) {
  return std::strstr(report.message, text.c_str()) != nullptr;
}

class FailingDrive : public StorageFaults {
 protected:
  // One run with these faults on the last rank.
  void run(Job& job) const {
    ASSERT_TRUE(job.wait(60 * kSecond)) << "a rank hangs";
    EXPECT_TRUE(folder_.empty()) << "a file is left";
  }
  Job::Main main_of(const Open& open, const std::string& faults) const {
    return [open, faults](int rank, Report& report) {
      if (rank == open.ranks - 1) setenv("MERON_IO_FAULTS", faults.c_str(), 1);
      train(open, rank, report);
    };
  }
};

// For every n of a run: what the n-th request moved is not believed, and all ranks hear of it from
// the next call on that waits.
TEST_F(FailingDrive, AFailureOfEachRequestOfARunIsReported) {
  MERON_NEED_FAULT_POINTS();
  for (const int ranks : {1, 2}) {
    const std::vector<int64_t> expected = expected_hashes(ranks);
    for (const std::string kind : {"read", "write"}) {
      for (const char* onward : {"", "+"}) {
        const int stride = kSanitized ? 5 : 1;
        int n = 1;
        for (;; n += stride) {
          const std::string faults = kind + ":" + std::to_string(n) + onward + ":EIO";
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + faults);
          Job job(ranks, main_of(open_with(ranks, nvme_plan(path())), faults));
          run(job);
          if (job[ranks - 1].status == MERON_OK) {
            expect_equal_bits(job, expected);
            break;
          }
          const Report& own = job[ranks - 1];
          EXPECT_EQ(MERON_E_IO, own.status) << own.message;
          EXPECT_EQ(ranks - 1, own.rank);
          EXPECT_TRUE(says(own, "EIO") && says(own, "at offset") && says(own, path()))
              << own.message;
          EXPECT_NE('\0', own.advice[0]);
          for (int peer = 0; peer < ranks - 1; ++peer) {
            EXPECT_EQ(peer, job[peer].rank);
            if (std::strcmp(own.function, "meron_optimizer_read_state") == 0) {
              // A rank's own call leaves the group as it was; the peer misses the rank, which ends.
              EXPECT_EQ(MERON_E_PEER_CLOSED, job[peer].status) << job[peer].message;
              EXPECT_EQ(ranks - 1, job[peer].peer);
              continue;
            }
            EXPECT_EQ(MERON_E_IO, job[peer].status) << job[peer].message;
            EXPECT_TRUE(says(job[peer], "found by rank " + std::to_string(ranks - 1)) &&
                        says(job[peer], path()))
                << job[peer].message;
          }
          expect_nothing_open(job);
          ASSERT_LT(n, 1000) << "the run does not end well";
          if (HasFailure()) return;
        }
        // Each of five units is written and read in more than one request, in each of two steps.
        EXPECT_GT(n, ranks == 1 ? 12 : 8);
      }
    }
  }
}

// Values of units: a run ends well only where nothing of the request was needed any more.
TEST_F(FailingDrive, AFailureOfEachRequestForValuesIsReportedWhereItMatters) {
  MERON_NEED_FAULT_POINTS();
  for (const int ranks : {1, 2}) {
    const std::vector<int64_t> expected = expected_hashes(ranks);
    for (const std::string kind : {"read", "write"}) {
      int failed = 0;
      for (int n = 1; n <= 40; n += kSanitized ? 5 : 1) {
        const std::string faults = kind + ":" + std::to_string(n) + ":EIO";
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + faults);
        Job job(ranks, main_of(open_with(ranks, values_plan(path())), faults));
        run(job);
        if (job[ranks - 1].status == MERON_OK) {
          expect_equal_bits(job, expected);
          continue;
        }
        ++failed;
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(MERON_E_IO, job[rank].status) << job[rank].message;
          EXPECT_TRUE(says(job[rank], "EIO") && says(job[rank], path())) << job[rank].message;
        }
        expect_nothing_open(job);
        if (HasFailure()) return;
      }
      EXPECT_GT(failed, kSanitized ? 1 : 8);
    }
  }
}

TEST_F(FailingDrive, RetriesChangeNoBit) {
  MERON_NEED_FAULT_POINTS();
  for (const int ranks : {1, 2}) {
    const std::vector<int64_t> expected = expected_hashes(ranks);
    for (const char* faults :
         {"read:*:short,write:*:short", "read:1:eintr,write:1:eintr,read:4:eagain,write:5:eagain",
          "read:2:short,read:3:eintr,read:4:short,write:2:eagain,write:3:eagain,write:7:short",
          "write:2:EINVAL"}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + faults);
      for (const std::string& plan : {nvme_plan(path()), values_plan(path())}) {
        // If direct writes of full pages fail, they use the page cache. Small values use it anyway.
        if (plan == values_plan(path()) && std::string(faults) == "write:2:EINVAL") continue;
        Job job(ranks, main_of(open_with(ranks, plan), faults));
        run(job);
        expect_equal_bits(job, expected);
      }
    }
  }
}

// A single rank has no peers to harm: it creates its optimizer again when the disk has space.
TEST_F(FailingDrive, WithoutRoomAtFirstMayBeTriedAgain) {
  MERON_NEED_FAULT_POINTS();
  const std::vector<int64_t> expected = expected_hashes(1);
  for (const char* faults : {"write:1:ENOSPC", "write:4:ENOSPC", "write:2:EDQUOT"}) {
    SCOPED_TRACE(faults);
    const Open open = open_with(1, nvme_plan(path()));
    Job job(1, [&](int rank, Report& report) {
      setenv("MERON_IO_FAULTS", faults, 1);
      with_session(open, rank, report, [&](Session& session) {
        try {
          session.build(kStorageUnits);
        } catch (const CallFailed& failed) {
          record(report, failed);
          report.numbers[3] = failed.status;
          report.status = MERON_OK;
        }
        session.make_optimizer();
        for (int step = 0; step < 2; ++step) train_step(session, step);
        report.times[kHash] = static_cast<int64_t>(hash_of(session));
      });
    });
    run(job);
    EXPECT_EQ(MERON_E_NO_SPACE, job[0].numbers[3]) << job[0].message;
    EXPECT_STREQ("meron_optimizer_create", job[0].function);
    EXPECT_TRUE(says(job[0], path())) << job[0].message;
    EXPECT_NE(nullptr, std::strstr(job[0].advice, "free some space")) << job[0].advice;
    expect_equal_bits(job, expected);
  }
}

// Another program, or the drive itself, changes a bit of this rank's file.
bool flip_a_bit(const std::string& folder, off_t at) {
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(each.path(), error).string();
    const int fd = std::atoi(each.path().filename().c_str());
    if (error || target.rfind(folder, 0) != 0 || (fcntl(fd, F_GETFL) & O_DIRECT) != 0) continue;
    unsigned char byte = 0;
    if (pread(fd, &byte, 1, at) != 1) continue;
    byte ^= 4;
    return pwrite(fd, &byte, 1, at) == 1;
  }
  return false;
}

using Corruption = StorageFaults;

TEST_F(Corruption, FromTheDriveIsFoundAndNeverUsed) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    // Values of the last unit before and after the step, where they can be seen without a call. Its
    // states are not among those that a step reads ahead for the next one.
    const Open open = open_with(ranks, nvme_plan(path()));
    Job job(ranks, [&](int rank, Report& report) {
      with_session(open, rank, report, [&](Session& session) {
        session.build(kStorageUnits);
        train_step(session, 0);
        meron_future gather{};
        MUST(meron_gather_begin, &gather, &session.units.back(), 1, nullptr);
        MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
        meron_view view{};
        MUST(meron_gather_view, &view, gather, session.params[2 * (kStorageUnits - 1)]);
        const auto* values = static_cast<const float*>(view.data);
        const std::vector<float> before(values, values + view.count);
        MUST(meron_future_release, gather);
        // The last write of the step is still pending.
        sleep_ns(200 * kMilli);
        session.barrier();
        // The states of each unit fill full pages.
        const off_t last = (kStorageUnits - 1) * (ranks == 1 ? 8192 : 4096);
        if (rank == ranks - 1) report.numbers[3] = flip_a_bit(path(), last + 24) ? 1 : 0;
        session.barrier();
        try {
          train_step(session, 1);
          session.barrier();
        } catch (const CallFailed&) {
          // A lone rank's values lie where they were seen.
          report.numbers[4] =
              ranks > 1 || std::memcmp(before.data(), values, view.count * sizeof(float)) == 0;
          throw;
        }
      });
    });
    ASSERT_TRUE(job.wait(30 * kSecond)) << "a rank hangs";
    EXPECT_EQ(1, job[ranks - 1].numbers[3]) << "no bit was flipped";
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(job[rank].message);
      EXPECT_EQ(MERON_E_CORRUPT, job[rank].status);
      EXPECT_TRUE(says(job[rank], "the optimizer states of unit 'u4'"));
      EXPECT_TRUE(says(job[rank], path()));
      EXPECT_EQ(rank != ranks - 1, says(job[rank], "found by rank 1"));
      EXPECT_NE(nullptr, std::strstr(job[rank].advice, "checkpoint")) << job[rank].advice;
      EXPECT_EQ(1, job[rank].numbers[4]) << "the values were changed";
    }
    expect_nothing_open(job);
    EXPECT_TRUE(folder_.empty());
  }
}

TEST_F(Corruption, OfValuesIsFoundAtTheGather) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const Open open = open_with(ranks, values_plan(path()));
    Job job(ranks, [&](int rank, Report& report) {
      with_session(open, rank, report, [&](Session& session) {
        session.build(3);
        train_step(session, 0);
        // Until they have been written, values are not read: memory has them.
        sleep_ns(200 * kMilli);
        session.barrier();
        // Each unit has the begin of 64 KiB of the file, behind what its part begins with in a
        // page.
        const off_t second = (64 << 10) + (ranks == 1 ? 0 : 2048);
        if (rank == ranks - 1) report.numbers[3] = flip_a_bit(path(), second + 24) ? 1 : 0;
        session.barrier();
        (void)hash_of(session);
      });
    });
    ASSERT_TRUE(job.wait(30 * kSecond)) << "a rank hangs";
    EXPECT_EQ(1, job[ranks - 1].numbers[3]) << "no bit was flipped";
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(job[rank].message);
      EXPECT_EQ(MERON_E_CORRUPT, job[rank].status);
      EXPECT_TRUE(says(job[rank], "the values of unit 'u1'"));
      EXPECT_TRUE(says(job[rank], path()));
      EXPECT_NE(nullptr, std::strstr(job[rank].advice, "checkpoint")) << job[rank].advice;
    }
    expect_nothing_open(job);
    EXPECT_TRUE(folder_.empty());
  }
}

using Killed = StorageFaults;

TEST_F(Killed, InTheMiddleOfStepsLeavesNothing) {
  Random random(test_seed());
  Times told;
  for (int round = 0; round < (kSanitized ? 3 : 10); ++round) {
    const Open open = open_with(2, nvme_plan(path()));
    Job job(2, [&](int rank, Report& report) {
      with_session(open, rank, report, [&](Session& session) {
        session.build(kStorageUnits);
        report.mark = 1;
        for (int step = 0;; ++step) train_step(session, step);
      });
    });
    ASSERT_TRUE(job.reached(1));
    sleep_ns(random.below(60) * kMilli);
    const int64_t killed = now_ns();
    job.signal(1, SIGKILL);
    ASSERT_TRUE(job.wait(30 * kSecond)) << "rank 0 hangs";
    EXPECT_EQ(MERON_E_PEER_DEAD, job[0].status) << job[0].message;
    EXPECT_EQ(1, job[0].peer);
    told.add(job[0].failed_ns - killed);
    EXPECT_LT(job[0].failed_ns - killed, 2 * kSecond);
    EXPECT_EQ(job[0].numbers[kDescriptors], job[0].numbers[kLeft]);
    EXPECT_TRUE(folder_.empty());
  }
  told.print("told of a peer killed in its steps");
}

}  // namespace
}  // namespace meron::test
