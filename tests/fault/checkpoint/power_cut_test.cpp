// SPDX-License-Identifier: Apache-2.0
// The power of a disk is cut while ranks save to it. After it is mounted again, whatever was
// reported as saved loads with its exact bytes.
#include "tests/fault/checkpoint/loop_disk.h"

namespace meron::test {
namespace {

constexpr uint64_t kDisk = 48 << 20;
constexpr int kTrialsOfADisk = 10;

// In a rank: saves until a call fails, and cancels some of the saves first. Marks each save that
// was reported as saved.
void save_for_ever(const Open& open, const SavedModel& model, const std::string& folder,
                   uint64_t first, bool overwrite, int rank, Report& report) {
  SteppedSession session(open, rank, model);
  report.numbers[0] = 1;
  for (uint64_t step = first;; ++step) {
    session.fill(step);
    const std::string name = overwrite ? "last" : step_name(step);
    const bool saved =
        step % 2 == 0 && session.save_unless_cancelled(folder, name, step, 2, overwrite, rank == 0);
    if (!saved) session.save(folder, name, step, 2, overwrite);
    report.mark = static_cast<int>(step);
  }
}

uint64_t reported_by(Job& job) {
  int mark = 0;
  for (int rank = 0; rank < job.ranks(); ++rank) mark = std::max(mark, job[rank].mark.load());
  return static_cast<uint64_t>(mark);
}

TEST(PowerCuts, ReportedSavesSurviveTheCut) {
  Random random(test_seed());
  Tally tally("power cuts");
  const int trials = trials_of(300);
  std::unique_ptr<Scratch> scratch;
  std::unique_ptr<LoopDisk> disk;
  SavedModel model;
  uint64_t reported = 0, next = 1;
  for (int number = 0; number < trials && !HasFailure(); ++number) {
    if (number % kTrialsOfADisk == 0) {
      disk.reset();
      scratch = std::make_unique<Scratch>();
      disk = std::make_unique<LoopDisk>(scratch->path(), kDisk);
      if (!disk->mounted()) {
        GTEST_SKIP() << "this process may not mount a file system: no power is cut (run as root)";
      }
      model = {random.below(8) == 0, random.below(2) == 0};
      reported = 0;
    }
    const int ranks = 1 + random.below(3);
    const bool copies = random.below(2) == 0, overwrite = random.below(3) == 0;
    const auto saves = static_cast<uint64_t>(random.below(4));
    const int64_t after = random.below(30'000) * 1000ll;
    SCOPED_TRACE("trial " + std::to_string(number) + ": " + std::to_string(ranks) + " ranks, " +
                 (copies ? "image copied" : "shut down") + (overwrite ? ", overwriting" : "") +
                 ", after " + std::to_string(saves) + " saves and " + std::to_string(after) +
                 " ns");
    const Open open = world_of(ranks);
    const std::string folder = disk->checkpoints();
    const uint64_t first = next;
    {
      Job job(ranks, [&](int rank, Report& report) {
        save_for_ever(open, model, folder, first, overwrite, rank, report);
      });
      ASSERT_TRUE(wait_until_saved(job, 0, saves == 0 ? 0 : first + saves - 1));
      sleep_ns(after);
      if (copies) {
        for (int rank = 0; rank < ranks; ++rank) job.signal(rank, SIGSTOP);
        sleep_ns(kMilli);
        reported = std::max(reported, reported_by(job));
        ASSERT_TRUE(disk->continue_from_a_copy());
        for (int rank = 0; rank < ranks; ++rank) job.signal(rank, SIGKILL);
        ASSERT_TRUE(job.wait(60 * kSecond));
      } else {
        ASSERT_TRUE(disk->shut_down()) << "the file system knows no shutdown";
        // All ranks get EIO, and the report of a save that succeeds now is true.
        ASSERT_TRUE(job.wait(60 * kSecond)) << "ranks hang on a dead disk";
        reported = std::max(reported, reported_by(job));
      }
      next = std::max(first, reported_by(job)) + 3;
    }
    ASSERT_TRUE(disk->restart());
    ++tally["trials"];
    ++tally[copies ? "image copied" : "shut down"];
    const Loaded loaded =
        load_anew(folder, 1 + random.below(3), model, "", reported != 0 ? next - 1 : 0);
    if (loaded.status == MERON_E_NOT_FOUND && reported == 0) {
      ++tally["nothing was saved yet"];
      continue;
    }
    EXPECT_TRUE(loaded.exact) << loaded.words;
    EXPECT_GE(loaded.step, reported) << "a reported checkpoint is lost";
    if (loaded.step > reported) ++tally["saved and not reported yet"];
    if (reported == 0) continue;
    reported = next - 1;
    const auto left = leftovers_of(folder);
    EXPECT_TRUE(left.empty()) << "left behind: " << left.front();
    ++tally["swept by the next save"];
  }
}

}  // namespace
}  // namespace meron::test
