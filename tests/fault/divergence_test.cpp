// SPDX-License-Identifier: Apache-2.0
// One rank's program differs from the others' in one call. All ranks must get an error that names
// both calls and both ranks, within a second. No rank may hang, and no rank may continue.
#include <map>

#include "tests/fault/job.h"

namespace meron::test {
namespace {

constexpr int kDivergences = kSanitized ? 80 : 200;
constexpr int64_t kNamedWithin = kSecond;
constexpr int kUnits = 3;
constexpr double kOtherRate = 0.5;

// One call of a program, and how the engine names it.
struct Call {
  std::string text;
  std::function<void(Session&)> make;
};
using Program = std::vector<Call>;

std::string quoted(const char* kind, const std::string& subject) {
  return std::string(kind) + " of '" + subject + "'";
}
std::string unit_name(size_t unit) {
  return "u" + std::to_string(unit);
}

Call gather(std::vector<size_t> units) {
  return {quoted("gather", unit_name(units.front())), [units](Session& session) {
            std::vector<meron_unit> all;
            for (const size_t unit : units) all.push_back(session.units[unit]);
            meron_future gather{};
            MUST(meron_gather_begin, &gather, all.data(), all.size(), nullptr);
            MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
            MUST(meron_future_release, gather);
          }};
}
Call reduce(size_t unit, meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT) {
  return {quoted("reduce", unit_name(unit)),
          [=](Session& session) { session.reduce(unit, 0.5f, &options); }};
}
Call step(double learning_rate = 1e-3) {
  return {quoted("optimizer_step", unit_name(0)), [=](Session& session) {
            MUST(meron_optimizer_set_learning_rate, session.optimizer, learning_rate);
            session.step();
          }};
}
Call barrier() {
  return {"barrier", [](Session& session) { session.barrier(); }};
}
Call broadcast(size_t bytes, int root) {
  return {quoted("broadcast", "from rank " + std::to_string(root)),
          [=](Session& session) { session.broadcast(bytes, root); }};
}
Call all_reduce(size_t count, meron_dtype dtype = MERON_F32,
                meron_reduce_op op = MERON_REDUCE_OP_SUM) {
  const char* const dtypes[] = {"f32", "bf16", "f16"};
  return {quoted("all_reduce",
                 std::string(dtypes[dtype]) + (op == MERON_REDUCE_OP_SUM ? " sum" : " mean")),
          [=](Session& session) { session.all_reduce(count, dtype, op); }};
}
Call update(size_t unit) {
  return {quoted("update", unit_name(unit)),
          [=](Session& session) { session.update(unit, 0.25f); }};
}
Call register_param(const std::string& name, const std::vector<int64_t>& shape,
                    meron_dtype dtype = MERON_F32) {
  const char* const dtypes[] = {"f32", "bf16", "f16"};
  std::string text = name + " " + dtypes[dtype] + "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return {quoted("param_register", text + "]"), [=](Session& session) {
            const meron_param param = session.register_param(name, shape, dtype);
            MUST(meron_param_release, param);
          }};
}
Call create_group(const std::vector<int32_t>& ranks) {
  std::string text;
  for (const int32_t rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return {quoted("group_create", text), [=](Session& session) {
            meron_group group{};
            MUST(meron_group_create, &group, session.context, ranks.data(), ranks.size());
          }};
}

// Calls that need nothing before them and leave nothing behind.
Call any_call(Random& random, int ranks) {
  const size_t unit = static_cast<size_t>(random.below(kUnits));
  switch (random.below(6)) {
    case 0:
      return gather({unit});
    case 1:
      return barrier();
    case 2:
      return broadcast(static_cast<size_t>(1 + random.below(70'000)), random.below(ranks));
    case 3:
      return all_reduce(static_cast<size_t>(1 + random.below(20'000)));
    case 4:
      return update(unit);
    default:
      return gather({unit, (unit + 1) % kUnits});
  }
}

void add_step(Program& program) {
  for (size_t unit = kUnits; unit-- > 0;) program.push_back(gather({unit}));
  for (size_t unit = kUnits; unit-- > 0;) program.push_back(reduce(unit));
  program.push_back(step());
}

// The calls of one rank in place of `good`, from one index of the program on. The calls that follow
// are equal again.
struct Divergence {
  const char* kind;
  Program good;
  Program bad;
  size_t at = 0;  // where they first differ
};

Divergence diverge(int kind, Random& random, int ranks) {
  const size_t a = static_cast<size_t>(random.below(kUnits)), b = (a + 1) % kUnits;
  meron_reduce_options other = MERON_REDUCE_OPTIONS_INIT;
  switch (kind) {
    case 0:
      return {"skip", {gather({a}), barrier()}, {barrier()}};
    case 1:
      return {"skip a collective", {all_reduce(900), gather({a})}, {gather({a})}};
    case 2:
      return {"repeat", {gather({a}), update(a)}, {gather({a}), gather({a}), update(a)}, 1};
    case 3:
      return {"swap gathers", {gather({a}), gather({b})}, {gather({b}), gather({a})}};
    case 4:
      return {"swap reduces", {reduce(a), reduce(b)}, {reduce(b), reduce(a)}};
    case 5:
      return {"resize", {register_param("new", {31, 7})}, {register_param("new", {31, 8})}};
    case 6:
      return {"retype",
              {register_param("new", {31, 7}, MERON_BF16)},
              {register_param("new", {31, 7}, MERON_F16)}};
    case 7:
      return {"rename", {register_param("new", {4})}, {register_param("mew", {4})}};
    case 8:
      return {"retype a collective", {all_reduce(64, MERON_BF16)}, {all_reduce(64, MERON_F16)}};
    case 9:
      return {"resize a collective", {broadcast(100, 0)}, {broadcast(101, 0)}};
    case 10:
      return {"another root", {broadcast(4'000, 0)}, {broadcast(4'000, ranks - 1)}};
    case 11:
      return {"another operation",
              {all_reduce(70, MERON_F32, MERON_REDUCE_OP_SUM)},
              {all_reduce(70, MERON_F32, MERON_REDUCE_OP_MEAN)}};
    case 12:
      return {"another collective", {barrier()}, {all_reduce(1)}};
    case 13:
      return {"another group", {create_group({0, 1})}, {create_group({1, 0})}};
    case 14:
      other.op = MERON_REDUCE_OP_SUM;
      return {"sum for mean", {reduce(a)}, {reduce(a, other)}};
    case 15:
      other.divisor = 2.0;
      return {"another divisor", {reduce(a)}, {reduce(a, other)}};
    case 16:
      other.boundary = 0;
      return {"another boundary", {reduce(a), barrier()}, {reduce(a, other), barrier()}};
    case 17: {
      Divergence made{"another learning rate", {}, {}};
      for (size_t unit = 0; unit < kUnits; ++unit) made.good.push_back(reduce(unit));
      made.bad = made.good;
      made.good.push_back(step());
      made.bad.push_back(step(kOtherRate));
      made.at = kUnits;
      return made;
    }
    case 18:
      return {"another list of units", {gather({a, b})}, {gather({b, a})}};
    default:
      return {"update for gather", {gather({a})}, {update(a)}};
  }
}
constexpr int kKinds = 20;

class Divergences : public testing::Test {
 protected:
  // Checks the reports of all ranks after the culprit's call.
  void expect_named(Job& job, int culprit, const std::string& good, const std::string& bad) {
    int64_t diverged = 0;
    for (int rank = 0; rank < job.ranks(); ++rank) {
      diverged = std::max(diverged, job[rank].times[0]);
    }
    for (int rank = 0; rank < job.ranks(); ++rank) {
      const Report& report = job[rank];
      const std::string message = report.message;
      SCOPED_TRACE("rank " + std::to_string(rank) + ": " + report.function + ": " + message);
      EXPECT_EQ(MERON_E_MISMATCH, report.status) << meron_status_name(report.status);
      EXPECT_EQ(rank, report.rank);
      EXPECT_GE(report.peer, 0);
      EXPECT_LT(report.peer, job.ranks());
      EXPECT_LT(report.failed_ns - diverged, kNamedWithin);
      named_.add(std::max<int64_t>(report.failed_ns - diverged, 0));
      const std::string its = "rank " + std::to_string(culprit) + " called " + bad;
      EXPECT_NE(std::string::npos, message.find(its)) << "lacks: " << its;
      bool other = false;
      for (int peer = 0; peer < job.ranks(); ++peer) {
        if (peer == culprit) continue;
        const std::string theirs = "rank " + std::to_string(peer) + " called " + good;
        other = other || message.find(theirs) != std::string::npos;
      }
      EXPECT_TRUE(other) << "lacks: rank N called " << good;
      EXPECT_NE('\0', report.advice[0]);
      // A rank may arrive so late that it cannot even open the broken world.
      if (std::strcmp(report.function, "meron_context_open") == 0) continue;
      EXPECT_EQ(report.status, report.numbers[1]) << "the error is not sticky";
      EXPECT_EQ(MERON_OK, report.numbers[2]);
    }
  }
  // Runs a program until a call fails, then closes. `diverges` is the index of the first call that
  // another rank may make otherwise.
  static void run(const Open& open, int rank, Report& report, const Program& program,
                  size_t diverges) {
    Session session(open, rank);
    try {
      session.build(kUnits);
      for (size_t i = 0; i < program.size(); ++i) {
        if (i == diverges) report.times[0] = now_ns();
        program[i].make(session);
      }
    } catch (const CallFailed&) {
      report.numbers[1] = meron_group_status(session.world, nullptr);
      report.numbers[2] = meron_context_close(session.context, nullptr);
      throw;
    }
    report.numbers[2] = meron_context_close(session.context, nullptr);
  }
  static Open any_open(Random& random, int trial) {
    Open open;
    open.transport = trial % 2 == 0 ? "shm" : "local";
    open.ranks = 2 + random.below(3);
    open.plan = "zero" + std::to_string(random.below(4));
    open.token = fresh_token();
    open.timeout_ns = 20 * kSecond;
    return open;
  }
  static bool threads(const Open& open) { return std::strcmp(open.transport, "local") == 0; }
  static Program common(Random& random, int ranks) {
    Program program;
    for (int calls = random.below(12); calls > 0; --calls) {
      program.push_back(any_call(random, ranks));
    }
    if (random.below(2) == 0) add_step(program);
    return program;
  }

  Times named_;
};

TEST_F(Divergences, AreNamedByEveryRank) {
  Random random(test_seed());
  std::map<std::string, int> kinds;
  for (int trial = 0; trial < kDivergences; ++trial) {
    const Open open = any_open(random, trial);
    const int culprit = random.below(open.ranks);
    const Divergence divergence = diverge(trial % kKinds, random, open.ranks);
    Program good = common(random, open.ranks);
    const size_t begin = good.size();
    Program bad = good;
    good.insert(good.end(), divergence.good.begin(), divergence.good.end());
    bad.insert(bad.end(), divergence.bad.begin(), divergence.bad.end());
    for (int i = 0; i < 4; ++i) {
      const Call next = i < 3 ? any_call(random, open.ranks) : barrier();
      good.push_back(next);
      bad.push_back(next);
    }
    // An accumulation of full gradients stays on its rank: there the call is missing.
    const bool local = std::strcmp(divergence.kind, "another boundary") == 0 &&
                       (open.plan == "zero0" || open.plan == "zero1");
    const std::string& its = divergence.bad[divergence.at + (local ? 1 : 0)].text;
    ++kinds[divergence.kind];
    SCOPED_TRACE("trial " + std::to_string(trial) + ": " + divergence.kind + ", " + open.transport +
                 " " + open.plan + ", rank " + std::to_string(culprit) + " of " +
                 std::to_string(open.ranks));
    Job job(
        open.ranks,
        [&](int rank, Report& report) {
          run(open, rank, report, rank == culprit ? bad : good, begin);
        },
        threads(open));
    ASSERT_TRUE(job.wait(15 * kSecond)) << "a rank hangs";
    expect_named(job, culprit, divergence.good[divergence.at].text, its);
    ASSERT_FALSE(HasFailure());
  }
  std::printf("divergences: %d:", kDivergences);
  for (const auto& [kind, count] : kinds) std::printf(" %s %d,", kind.c_str(), count);
  std::printf("\n");
  named_.print("named after");
}

// The first call of every context says by which plan it works.
TEST_F(Divergences, OfPlansAreNamedAtOpen) {
  Random random(test_seed() + 1);
  for (int trial = 0; trial < 12; ++trial) {
    const Open open = any_open(random, trial);
    const int culprit = random.below(open.ranks);
    const std::string other = open.plan == "zero1" ? "zero2" : "zero1";
    SCOPED_TRACE("trial " + std::to_string(trial) + ": " + open.transport);
    Job job(
        open.ranks,
        [&](int rank, Report& report) {
          Open own = open;
          if (rank == culprit) own.plan = other;
          report.times[0] = now_ns();
          run(own, rank, report, {barrier()}, 9);
        },
        threads(open));
    ASSERT_TRUE(job.wait(15 * kSecond)) << "a rank hangs";
    expect_named(job, culprit, quoted("context_open", open.plan), quoted("context_open", other));
    ASSERT_FALSE(HasFailure());
  }
  named_.print("named after");
}

// A rank's own code path ended early: it closed, and the others need it.
TEST_F(Divergences, OfARankThatClosedAreNamedAsThat) {
  Random random(test_seed() + 2);
  for (int trial = 0; trial < 24; ++trial) {
    const Open open = any_open(random, trial);
    const int culprit = random.below(open.ranks);
    Program program = common(random, open.ranks);
    const size_t begin = program.size();
    Program shorter = program;
    program.push_back(any_call(random, open.ranks));
    program.push_back(barrier());
    SCOPED_TRACE("trial " + std::to_string(trial) + ": " + open.transport + " " + open.plan +
                 ", rank " + std::to_string(culprit) + " of " + std::to_string(open.ranks));
    Job job(
        open.ranks,
        [&](int rank, Report& report) {
          run(open, rank, report, rank == culprit ? shorter : program, begin);
        },
        threads(open));
    ASSERT_TRUE(job.wait(15 * kSecond)) << "a rank hangs";
    int64_t diverged = 0;
    for (int rank = 0; rank < job.ranks(); ++rank) {
      diverged = std::max(diverged, job[rank].times[0]);
    }
    for (int rank = 0; rank < open.ranks; ++rank) {
      const Report& report = job[rank];
      SCOPED_TRACE("rank " + std::to_string(rank) + ": " + report.message);
      EXPECT_TRUE(exited_well(job.status(rank)));
      if (rank == culprit) {
        EXPECT_EQ(MERON_OK, report.status);
        continue;
      }
      EXPECT_EQ(MERON_E_PEER_CLOSED, report.status) << meron_status_name(report.status);
      EXPECT_EQ(culprit, report.peer);
      EXPECT_LT(report.failed_ns - diverged, kNamedWithin);
      named_.add(std::max<int64_t>(report.failed_ns - diverged, 0));
    }
    ASSERT_FALSE(HasFailure());
  }
  named_.print("named after");
}

// Order is checked per group. Ranks that wait for each other in different groups made no call that
// differs: the deadline ends it, and the message has what the missing rank did last.
TEST_F(Divergences, AcrossGroupsEndAtTheDeadline) {
  Open open;
  open.token = fresh_token();
  open.timeout_ns = 400 * kMilli;
  Job job(2, [&](int rank, Report& report) {
    Session session(open, rank);
    const int32_t members[] = {0, 1};
    meron_group group{};
    MUST(meron_group_create, &group, session.context, members, 2);
    report.times[0] = now_ns();
    try {
      session.barrier(rank == 0 ? session.world : group);
    } catch (const CallFailed&) {
      sleep_ns(open.timeout_ns);  // so that neither counts as dead
      session.close();
      throw;
    }
  });
  ASSERT_TRUE(job.wait(15 * kSecond));
  for (int rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(job[rank].message);
    EXPECT_EQ(MERON_E_TIMEOUT, job[rank].status);
    EXPECT_EQ(1 - rank, job[rank].peer);
    EXPECT_GE(job[rank].failed_ns - job[rank].times[0], open.timeout_ns);
    EXPECT_LT(job[rank].failed_ns - job[rank].times[0], open.timeout_ns + kSecond);
  }
}

}  // namespace
}  // namespace meron::test
