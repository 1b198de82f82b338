// SPDX-License-Identifier: Apache-2.0
// Calls to the drive fail while ranks save and load, each in turn; a disk is full. Every rank gets
// the error, training continues, and every reported save loads with its exact bytes.
#include "io/fault_plan.h"
#include "tests/fault/checkpoint/loop_disk.h"

namespace meron::test {
namespace {

constexpr uint64_t kSaves = 4;  // of a trial
// A call that always fails: nothing more is saved.
struct Fault {
  std::string call, error;
  bool sticky = false;
  int rank = 0, n = 1;

  std::string plan() const {
    return call + ":" + std::to_string(n) + (sticky ? "+" : "") + ":" + error;
  }
  std::string words() const { return plan() + " on rank " + std::to_string(rank); }
};

// Saves kSaves times, whatever happens. numbers[step]: 1 saved, else the status.
void save_through(const Fault& fault, const Open& open, const SavedModel& model,
                  const std::string& folder, int rank, Report& report) {
  if (rank == fault.rank) setenv("MERON_IO_FAULTS", fault.plan().c_str(), 1);
  SteppedSession session(open, rank, model);
  for (uint64_t step = 1; step <= kSaves; ++step) {
    session.fill(step);
    try {
      session.save(folder, step_name(step), step);
      report.numbers[step] = 1;
    } catch (const CallFailed& failed) {
      report.numbers[step] = failed.status;
      copy_text(report.note, failed.message);
    }
    session.barrier();  // the group continues to work
  }
  session.close();
}

class FailingCalls : public testing::Test {
 protected:
  // True if a save failed.
  bool try_saves(const Fault& fault, int ranks, Random& random, Tally& tally) {
    SCOPED_TRACE(fault.words() + " of " + std::to_string(ranks) + ", saving");
    const Scratch scratch;
    const SavedModel model = {false, random.below(2) == 0};
    const std::string folder = scratch.path() + "/checkpoints";
    const Open open = world_of(ranks);
    Job job(ranks, [&](int rank, Report& report) {
      save_through(fault, open, model, folder, rank, report);
    });
    EXPECT_TRUE(job.wait(60 * kSecond)) << "ranks hang";
    ++tally["saves"];
    uint64_t saved = 0;
    int failed = 0;
    for (uint64_t step = 1; step <= kSaves; ++step) {
      const int outcome = job[0].numbers[step];
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(MERON_OK, job[rank].status) << "the group broke: " << job[rank].message;
        EXPECT_EQ(outcome, job[rank].numbers[step]) << "ranks differ in step " << step;
        if (outcome == 1) continue;
        const std::string words = job[rank].note;
        EXPECT_NE(words.find("rank " + std::to_string(fault.rank)), words.npos) << words;
        EXPECT_NE(words.find(fault.error), words.npos) << words;
      }
      if (outcome == 1) saved = step;
      const bool right = outcome == 1 || outcome == MERON_E_IO || outcome == MERON_E_NO_SPACE;
      EXPECT_TRUE(right) << "status " << outcome << ": " << job[0].note;
      failed += outcome != 1 ? 1 : 0;
      ++tally[outcome == 1 ? "saved" : "failed on all ranks"];
    }
    EXPECT_TRUE(fault.sticky || failed <= 1) << "the save after a failed one fails too";
    const Loaded loaded = load_anew(folder, 1 + random.below(3), model);
    if (saved == 0 && loaded.status == MERON_E_NOT_FOUND) return failed != 0;
    EXPECT_TRUE(loaded.exact) << loaded.words;
    EXPECT_GE(loaded.step, saved) << "a reported checkpoint is lost";
    return failed != 0;
  }

  // True if the load failed.
  bool try_load(const Fault& fault, int ranks, const SavedModel& model, const std::string& folder,
                Tally& tally) {
    SCOPED_TRACE(fault.words() + " of " + std::to_string(ranks) + ", loading");
    const Open open = world_of(ranks);
    Job job(ranks, [&](int rank, Report& report) {
      if (rank == fault.rank) setenv("MERON_IO_FAULTS", fault.plan().c_str(), 1);
      SteppedSession session(open, rank, model);
      session.fill(7);
      const uint64_t step = session.load(folder);
      copy_text(report.note, session.difference(step));
      session.barrier();
      session.close();
    });
    EXPECT_TRUE(job.wait(60 * kSecond)) << "ranks hang";
    ++tally["loads"];
    const bool failed = job[0].status < 0;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(failed, job[rank].status < 0) << "one rank alone: " << job[rank].message;
      EXPECT_STREQ("", job[rank].note) << "loaded as good, and it is not";
    }
    ++tally[failed ? "load failed on all ranks" : "loaded"];
    return failed;
  }
};

TEST_F(FailingCalls, EachCallInTurnFailsOnAllRanksOrNot) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  Random random(test_seed());
  Tally tally("failing calls");
  const int worlds = whole_campaign() ? 3 : 1;
  for (int ranks = 1; ranks <= worlds || (ranks == 2 && worlds == 1); ++ranks) {
    if (worlds == 1 && ranks == 1) continue;
    for (const char* call : {"open", "mkdir", "write", "fsync", "rename", "read"}) {
      for (const char* error : {"EIO", "ENOSPC"}) {
        for (const bool sticky : {false, true}) {
          for (int rank = 0; rank < ranks; rank += std::max(1, ranks - 1)) {
            // In a share of the campaign every few calls, and not each error.
            const int stride = whole_campaign() ? 1 : 9;
            if (stride != 1 && sticky != (std::string(error) == "ENOSPC")) continue;
            int passed = 0;
            for (int n = 1; passed < 3 && n < 200 && !HasFailure(); n += stride) {
              passed =
                  try_saves({call, error, sticky, rank, n}, ranks, random, tally) ? 0 : passed + 1;
            }
          }
        }
      }
    }
  }
}

TEST_F(FailingCalls, EachReadInTurnFailsALoadOnAllRanks) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  Tally tally("failing reads");
  for (const bool large : {false, true}) {
    const Scratch scratch;
    const SavedModel model = {large, large};
    const std::string folder = scratch.path() + "/checkpoints";
    const Open open = world_of(3);
    Job job(3, [&](int rank, Report&) {
      SteppedSession session(open, rank, model);
      session.fill(3);
      session.save(folder, step_name(3), 3);
      session.close();
    });
    ASSERT_TRUE(job.wait(60 * kSecond));
    for (const char* error : {"EIO", "ENOSPC"}) {
      for (const char* call : {"read", "open"}) {
        for (int rank = 0; rank < 2; ++rank) {
          bool failed = true;
          // In a share of the campaign every few calls.
          const int stride = whole_campaign() ? 1 : 9;
          for (int n = 1; failed && n < 200 && !HasFailure(); n += stride) {
            failed = try_load({call, error, n % 2 == 0, rank, n}, 2, model, folder, tally);
          }
        }
      }
    }
    EXPECT_TRUE(load_anew(folder, 2, model).exact);
  }
}

TEST_F(FailingCalls, AFullDiskFailsOnAllRanksAndLosesNothing) {
  Random random(test_seed());
  Tally tally("full disks");
  const int trials = trials_of(60);
  for (int number = 0; number < trials && !HasFailure(); ++number) {
    const Scratch scratch;
    const int ranks = 1 + random.below(3);
    const SavedModel model = {random.below(3) == 0, random.below(2) == 0};
    const uint64_t bytes = (model.large ? 12 : 3) << 20;
    LoopDisk disk(scratch.path(), bytes + 1024 * static_cast<uint64_t>(random.below(8 << 10)));
    if (!disk.mounted()) {
      GTEST_SKIP() << "this process may not mount a file system: no disk is full (run as root)";
    }
    SCOPED_TRACE("trial " + std::to_string(number) + ", " + std::to_string(ranks) + " ranks");
    const std::string folder = disk.checkpoints();
    const Open open = world_of(ranks);
    // times[0]: the last step that was saved. numbers[0]: the failure's status.
    Job job(ranks, [&](int rank, Report& report) {
      SteppedSession session(open, rank, model);
      uint64_t step = 1;
      for (; step < 400 && report.numbers[0] == 0; ++step) {
        session.fill(step);
        try {
          session.save(folder, step_name(step), step);
          report.times[0] = static_cast<int64_t>(step);
        } catch (const CallFailed& failed) {
          report.numbers[0] = failed.status;
          copy_text(report.note, failed.message);
        }
        session.barrier();
      }
      // After files are removed, the same run continues.
      if (rank == 0 && report.times[0] > 1) fs::remove_all(folder + "/" + step_name(1));
      session.barrier();
      session.fill(step + 1);
      if (report.times[0] > 1) session.save(folder, step_name(step + 1), step + 1, 1);
      report.times[1] = report.times[0] > 1 ? static_cast<int64_t>(step + 1) : 0;
      session.barrier();
      session.close();
    });
    ASSERT_TRUE(job.wait(120 * kSecond)) << "ranks hang";
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
      EXPECT_EQ(MERON_E_NO_SPACE, job[rank].numbers[0]) << job[rank].note;
    }
    ++tally["trials"];
    tally["saved before"] += static_cast<int>(job[0].times[0]);
    const auto last = static_cast<uint64_t>(std::max(job[0].times[0], job[0].times[1]));
    const Loaded loaded = load_anew(folder, 1 + random.below(3), model);
    if (last == 0 && loaded.status == MERON_E_NOT_FOUND) continue;
    EXPECT_TRUE(loaded.exact) << loaded.words;
    EXPECT_EQ(loaded.step, last);
  }
}

}  // namespace
}  // namespace meron::test
