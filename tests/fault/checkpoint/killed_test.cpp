// SPDX-License-Identifier: Apache-2.0
// Ranks are killed while they save: one at a kill point of the save or the commit, one or all at a
// random time. Whatever was reported as saved loads with its exact bytes.
#include "io/fault_plan.h"
#include "tests/fault/checkpoint/campaign.h"

namespace meron::test {
namespace {

// Saves of one rank pass about so many kill points.
constexpr int kPointsOfASave = 40;
constexpr uint64_t kSaves = 3;  // in a trial, if no rank is killed

enum class Victim { one_at_a_point, all_at_a_point, one_by_time, all_by_time };
constexpr const char* kVictims[] = {"one rank at a kill point", "all ranks, one at a kill point",
                                    "one rank at a random time", "all ranks at a random time"};

struct Trial {
  int ranks = 1, victim = 0;
  Victim how = Victim::one_by_time;
  int point = 0;
  uint64_t after_saves = 0;
  int64_t after_ns = 0;
  uint64_t keep = 0;
  bool overwrite = false;  // each save replaces the one before, under one name
  bool cancels = false;    // a rank first cancels each save
};

Trial draw(Random& random) {
  Trial trial;
  trial.ranks = 1 + random.below(3);
  trial.victim = random.below(trial.ranks);
  trial.how = static_cast<Victim>(random.below(4));
  if (!have_fault_points() && trial.how < Victim::one_by_time) {
    trial.how = Victim::one_by_time;
  }
  // Rank 0 alone commits, and passes most points.
  const int points = trial.victim == 0 ? kPointsOfASave : 8;
  trial.point = 1 + random.below(points * 2);
  trial.after_saves = static_cast<uint64_t>(random.below(kSaves));
  trial.after_ns = random.below(15'000) * 1000;
  trial.keep = static_cast<uint64_t>(random.below(3));
  trial.overwrite = random.below(4) == 0;
  trial.cancels = random.below(3) == 0;
  return trial;
}

std::string name_of(const Trial& trial, uint64_t step) {
  return trial.overwrite ? "last" : step_name(step);
}

// In a rank: saves `first`, `first + 1`, ... and marks each that was reported as saved.
void save_steps(const Trial& trial, const Open& open, const SavedModel& model,
                const std::string& folder, uint64_t first, int rank, Report& report) {
  const bool at_point = trial.how == Victim::one_at_a_point || trial.how == Victim::all_at_a_point;
  if (at_point && rank == trial.victim) {
    setenv("MERON_KILL_POINT", ("*:" + std::to_string(trial.point)).c_str(), 1);
  }
  SteppedSession session(open, rank, model);
  report.numbers[0] = 1;  // it saves from here on
  for (uint64_t step = first; step < first + kSaves; ++step) {
    session.fill(step);
    const std::string name = name_of(trial, step);
    const bool saved =
        trial.cancels && session.save_unless_cancelled(folder, name, step, trial.keep,
                                                       trial.overwrite, rank == trial.victim);
    if (!saved) session.save(folder, name, step, trial.keep, trial.overwrite);
    report.mark = static_cast<int>(step);
  }
  session.close();
}

void kill_all(Job& job) {
  for (int rank = 0; rank < job.ranks(); ++rank) job.signal(rank, SIGKILL);
}

// Kills as the trial specifies. True if a rank was killed.
bool carry_out(const Trial& trial, uint64_t first, Job& job) {
  const bool by_time = trial.how >= Victim::one_by_time;
  if (by_time) {
    // Most of a rank's life is its start: the time is counted from a save.
    (void)wait_until_saved(job, trial.victim,
                           trial.after_saves == 0 ? 0 : first + trial.after_saves - 1);
    sleep_ns(trial.after_ns);
    if (trial.how == Victim::all_by_time) kill_all(job);
    job.signal(trial.victim, SIGKILL);
  } else if (trial.how == Victim::all_at_a_point) {
    // Without reaping: the job does that.
    siginfo_t ended{};
    if (waitid(P_PID, static_cast<id_t>(job.pid(trial.victim)), &ended, WEXITED | WNOWAIT) == 0) {
      kill_all(job);
    }
  }
  EXPECT_TRUE(job.wait(90 * kSecond)) << "survivors hang";
  return WIFSIGNALED(job.status(trial.victim));
}

TEST(KilledSaves, ReportedSavesLoadAndTornOnesDoNot) {
  Random random(test_seed());
  Tally tally("killed");
  const int trials = trials_of(2000);
  std::unique_ptr<Scratch> scratch;
  SavedModel model;
  uint64_t reported = 0, next = 1;
  for (int number = 0; number < trials && !testing::Test::HasFailure(); ++number) {
    if (number % 8 == 0) {
      const std::string drive = fs::temp_directory_path().string();
      scratch = std::make_unique<Scratch>(number % 16 == 0 ? drive : memory_folder());
      model = {random.below(8) == 0, random.below(2) == 0};
      reported = 0;
    }
    const std::string folder = scratch->path() + "/checkpoints";
    const Trial trial = draw(random);
    SCOPED_TRACE("trial " + std::to_string(number) + ": " + kVictims[static_cast<int>(trial.how)] +
                 ", rank " + std::to_string(trial.victim) + " of " + std::to_string(trial.ranks) +
                 ", point " + std::to_string(trial.point) + ", after " +
                 std::to_string(trial.after_saves) + " saves and " +
                 std::to_string(trial.after_ns) + " ns");
    const Open open = world_of(trial.ranks);
    const uint64_t first = next;
    bool killed = false;
    {
      Job job(trial.ranks, [&](int rank, Report& report) {
        save_steps(trial, open, model, folder, first, rank, report);
      });
      killed = carry_out(trial, first, job);
      for (int rank = 0; rank < trial.ranks; ++rank) {
        reported = std::max(reported, static_cast<uint64_t>(job[rank].mark.load()));
        EXPECT_TRUE(killed || job[rank].status == MERON_OK) << job[rank].message;
      }
    }
    next += kSaves + 1;
    ++tally["trials"];
    ++tally[killed ? kVictims[static_cast<int>(trial.how)] : "ended before the kill"];
    const uint64_t begun = first + kSaves - 1;
    const Loaded loaded =
        load_anew(folder, 1 + random.below(3), model, "", reported != 0 ? next - 1 : 0);
    if (loaded.status == MERON_E_NOT_FOUND && reported == 0) {
      ++tally["nothing was saved yet"];
      continue;
    }
    EXPECT_TRUE(loaded.exact) << loaded.words;
    EXPECT_GE(loaded.step, reported) << "a reported checkpoint is lost";
    EXPECT_LE(loaded.step, begun);
    if (loaded.step > reported) ++tally["saved and not reported yet"];
    if (reported != 0) {  // the world that loaded has saved
      reported = next - 1;
      const auto left = leftovers_of(folder);
      EXPECT_TRUE(left.empty()) << "left behind: " << left.front();
      ++tally["swept by the next save"];
    }
  }
}

}  // namespace
}  // namespace meron::test
