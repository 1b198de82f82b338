// SPDX-License-Identifier: Apache-2.0
// A rank is killed at a random time; the others must say which, soon, and close, and leave nothing
// behind.
#include "tests/fault/job.h"

namespace meron::test {
namespace {

constexpr int kKills = kSanitized ? 40 : 200;
constexpr int64_t kNamedWithin = 2 * kSecond;
constexpr int64_t kClosedWithin = 5 * kSecond;
// Timeout for a rank that never arrives: only a launcher could know of its death.
constexpr int64_t kMeetingTimeout = (kSanitized ? 1500 : 600) * kMilli;

enum Mark { kStarted, kOpened, kTraining };

// Where a rank is, in Report::numbers[0].
enum Phase {
  kOpening,
  kBuilding,
  kGather,
  kGradient,
  kReduce,
  kStep,
  kBarrier,
  kBroadcast,
  kAllReduce,
  kUpdate,
  kPhases
};
constexpr const char* kPhaseNames[kPhases] = {"opening",    "building", "gather",  "gradient",
                                              "reduce",     "step",     "barrier", "broadcast",
                                              "all_reduce", "update"};

// Trains until a call fails.
void train(const Open& open, int rank, Report& report) {
  // Written by the rank, read by the test while the rank runs.
  const auto phase = [&](Phase now) {
    __atomic_store_n(&report.numbers[0], static_cast<int32_t>(now), __ATOMIC_RELAXED);
  };
  report.mark = kStarted;
  // On a busy machine, some ranks enter the jail only after the timeout of the rendezvous.
  while (__atomic_load_n(&report.numbers[3], __ATOMIC_RELAXED) == 0) sleep_ns(kMilli / 20);
  std::unique_ptr<Session> session;
  const auto close = [&] {
    if (!session) return;
    report.numbers[1] = meron_group_status(session->world, nullptr);
    report.times[0] = now_ns();
    report.numbers[2] = meron_context_close(session->context, nullptr);
    report.times[1] = now_ns();
  };
  try {
    session = std::make_unique<Session>(open, rank);
    report.mark = kOpened;
    phase(kBuilding);
    session->build(3);
    report.mark = kTraining;
    for (int step = 0;; ++step) {
      for (size_t u = 0; u < 3; ++u) {
        phase(kGather);
        session->gather(u);
      }
      std::vector<meron_future> futures;
      for (size_t u = 3; u-- > 0;) {
        phase(kGradient);
        futures.push_back(session->reduce_begin(u, 0.25f));
      }
      phase(kReduce);
      for (const meron_future future : futures) session->wait(future);
      phase(kStep);
      session->step();
      phase(kBarrier);
      session->barrier();
      phase(kBroadcast);
      session->broadcast(40'000, step % open.ranks);
      phase(kAllReduce);
      session->all_reduce(9'000);
      if (step % 8 == 7) {
        phase(kUpdate);
        session->update(0, 0.5f);
      }
    }
  } catch (const CallFailed&) {
    close();
    throw;
  }
}

class Kill : public testing::Test {
 protected:
  static std::string names(const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& each : all) text += each + " ";
    return text;
  }
  // No process of a job may be left; the jail's is.
  static int children() {
    int count = 0;
    while (waitpid(-1, nullptr, WNOHANG) > 0) ++count;
    return count;
  }
};

TEST_F(Kill, SurvivorsNameTheDead) {
  Random random(test_seed());
  const Jail jail;
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // a rank's own child would become ours
  Times detected, closed;
  std::vector<int> hit(kPhases, 0);
  int while_meeting = 0, timeouts = 0;
  for (int trial = 0; trial < kKills; ++trial) {
    Open open;
    open.ranks = 2 + random.below(3);
    open.plan = "zero" + std::to_string(random.below(4));
    open.token = fresh_token();
    const int victim = random.below(open.ranks);
    const bool meeting = trial % 5 == 4;
    if (meeting) open.timeout_ns = kMeetingTimeout;
    SCOPED_TRACE("trial " + std::to_string(trial) + ": " + open.plan + ", rank " +
                 std::to_string(victim) + " of " + std::to_string(open.ranks) +
                 (meeting ? " while the ranks meet" : ""));

    Job job(
        open.ranks, [&](int rank, Report& report) { train(open, rank, report); }, false, &jail);
    ASSERT_TRUE(job.reached(kStarted));
    for (int rank = 0; rank < open.ranks; ++rank) {
      __atomic_store_n(&job[rank].numbers[3], 1, __ATOMIC_RELAXED);
    }
    if (meeting) {
      sleep_ns(random.below(kSanitized ? 40'000 : 4'000) * int64_t{1000});
    } else {
      ASSERT_TRUE(job.reached(random.below(4) == 0 ? kOpened : kTraining));
      sleep_ns(random.below(12'000) * int64_t{1000});
    }
    const int phase = __atomic_load_n(&job[victim].numbers[0], __ATOMIC_RELAXED);
    const int64_t killed = now_ns();
    job.signal(victim, SIGKILL);
    ++hit[static_cast<size_t>(phase)];

    ASSERT_TRUE(job.wait(20 * kSecond)) << "a survivor hangs";
    for (int rank = 0; rank < open.ranks; ++rank) {
      const Report& report = job[rank];
      if (rank == victim) {
        EXPECT_TRUE(WIFSIGNALED(job.status(rank)) && WTERMSIG(job.status(rank)) == SIGKILL);
        continue;
      }
      SCOPED_TRACE("survivor " + std::to_string(rank) + ": " + report.function + ": " +
                   report.message);
      EXPECT_TRUE(exited_well(job.status(rank)));
      EXPECT_EQ(victim, report.peer);
      EXPECT_EQ(rank, report.rank);
      EXPECT_NE(nullptr, std::strstr(report.message, ("rank " + std::to_string(victim)).c_str()));
      if (meeting && report.status == MERON_E_TIMEOUT) {
        ++timeouts;
      } else {
        EXPECT_EQ(MERON_E_PEER_DEAD, report.status) << meron_status_name(report.status);
        EXPECT_LT(report.failed_ns - killed, kNamedWithin);
        detected.add(report.failed_ns - killed);
      }
      if (report.times[0] == 0) {
        ++while_meeting;
        continue;  // there was no context yet
      }
      EXPECT_EQ(report.status, report.numbers[1]) << "the error is not sticky";
      EXPECT_EQ(MERON_OK, report.numbers[2]);
      EXPECT_LT(report.times[1] - report.times[0], kClosedWithin);
      closed.add(report.times[1] - report.times[0]);
    }
    EXPECT_EQ("", names(jail.leftovers()));
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(0, children());
  std::printf("kills: %d;", kKills);
  for (size_t p = 0; p < kPhases; ++p) std::printf(" %s %d", kPhaseNames[p], hit[p]);
  std::printf("\nsurvivors without a context: %d; timeouts: %d\n", while_meeting, timeouts);
  if (!jail.is_private()) std::printf("the host allows no mount namespace: looked at names only\n");
  detected.print("named after");
  closed.print("close took");
}

}  // namespace
}  // namespace meron::test
