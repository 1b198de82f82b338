// SPDX-License-Identifier: Apache-2.0
// A short training whose optimizer states lie on a drive, and what it must end with.
#pragma once

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <filesystem>

#include "io/fault_plan.h"
#include "tests/fault/job.h"

namespace meron::test {

// An empty folder below the present one, which goes with all that is in it; not found() where that
// is in memory.
class DriveFolder {
 public:
  DriveFolder() {
    struct statfs system {};
    std::string path = "./meron-storage-XXXXXX";
    if (statfs(".", &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC ||
        mkdtemp(path.data()) == nullptr) {
      return;
    }
    path_ = std::filesystem::canonical(path).string();
  }
  ~DriveFolder() {
    std::error_code ignored;
    if (found()) std::filesystem::remove_all(path_, ignored);
  }
  DriveFolder(const DriveFolder&) = delete;
  DriveFolder& operator=(const DriveFolder&) = delete;

  bool found() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

class StorageFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (!folder_.found()) GTEST_SKIP() << "the present folder is in memory: run on a drive";
  }
  const std::string& path() const { return folder_.path(); }
  DriveFolder folder_;
};

// The smallest requests that there are, so that a short run has many.
inline std::string nvme_plan(const std::string& folder) {
  return R"({"preset": "zero3", "optimizer": {"tier": "nvme", "sub_group": 4096, "buffers": 3}, )"
         R"("nvme": {"path": ")" +
         folder + R"(", "block": 4096, "depth": 2}})";
}

// The same with the values there, and the states in memory: no more than one unit changes at a
// time.
inline std::string values_plan(const std::string& folder) {
  return R"({"preset": "zero3", "param": {"tier": "nvme", "buffers": 1}, "nvme": {"path": ")" +
         folder + R"(", "block": 4096, "depth": 2}})";
}

inline Open open_with(int ranks, const std::string& plan) {
  Open open;
  open.transport = ranks == 1 ? "self" : "shm";
  open.ranks = ranks;
  open.plan = plan;
  open.token = fresh_token();
  open.timeout_ns = 20 * kSecond;
  return open;
}

inline uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 0x100000001b3ull;
  return hash;
}

constexpr int kStorageUnits = 5;

inline void train_step(Session& session, int step) {
  for (size_t unit = session.units.size(); unit-- > 0;) {
    session.reduce(unit, 0.125f * static_cast<float>(step + session.rank + 1));
  }
  session.step();
}

// Of all values, and of the states that this rank has.
inline uint64_t hash_of(Session& session) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < session.params.size(); ++i) {
    meron_future gather{};
    MUST(meron_gather_begin, &gather, &session.units[i / 2], 1, nullptr);
    MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    MUST(meron_gather_view, &view, gather, session.params[i]);
    hash = hash_bytes(hash, view.data, view.count * sizeof(float));
    MUST(meron_future_release, gather);
    meron_param_info info{};
    info.struct_size = sizeof info;
    MUST(meron_param_get_info, &info, session.params[i]);
    std::vector<float> state(info.shard_count + 1);
    for (const meron_optimizer_state which :
         {MERON_OPTIMIZER_STATE_EXP_AVG, MERON_OPTIMIZER_STATE_EXP_AVG_SQ}) {
      MUST(meron_optimizer_read_state, state.data(), info.shard_count, session.optimizer,
           session.params[i], which);
      hash = hash_bytes(hash, state.data(), info.shard_count * sizeof(float));
    }
  }
  return hash;
}

inline int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Indices of the values in a rank's report.
enum Number { kWarnings = 0, kDescriptors = 1, kLeft = 2 };
enum Time { kHash = 0 };

inline void count_warnings(void* user, meron_log_level level, const char* message, size_t) {
  auto* const report = static_cast<Report*>(user);
  if (level > MERON_LOG_WARNING) return;
  ++report->numbers[kWarnings];
  copy_text(report->note, message);
}

// Runs `body` with a session whose warnings the report counts. Closes it, also if `body` fails, and
// compares the rank's open descriptors with those before.
template <class Body>
void with_session(const Open& given, int rank, Report& report, const Body& body) {
  Open open = given;
  open.adjust = [&](int, meron_context_options& options) {
    options.log = count_warnings;
    options.log_user = &report;
  };
  report.numbers[kDescriptors] = open_descriptors();
  const auto leave = [&] { report.numbers[kLeft] = open_descriptors(); };
  try {
    Session session(open, rank);
    try {
      body(session);
    } catch (const CallFailed&) {
      session.close();
      throw;
    }
    session.close();
  } catch (const CallFailed&) {
    leave();
    throw;
  }
  leave();
}

// Two steps and a barrier, which reports a failure on one rank to all.
inline void train(const Open& open, int rank, Report& report) {
  with_session(open, rank, report, [&](Session& session) {
    session.build(kStorageUnits);
    for (int step = 0; step < 2; ++step) train_step(session, step);
    session.barrier();
    report.times[kHash] = static_cast<int64_t>(hash_of(session));
    session.barrier();
  });
}

inline void expect_nothing_open(Job& job) {
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(job[rank].numbers[kDescriptors], job[rank].numbers[kLeft])
        << "rank " << rank << ": descriptors before and after";
  }
}

// By rank, what a run gives whose states are in memory.
inline std::vector<int64_t> expected_hashes(int ranks) {
  const Open open = open_with(ranks, "zero3");
  Job job(ranks, [&](int rank, Report& report) { train(open, rank, report); });
  EXPECT_TRUE(job.wait(60 * kSecond));
  std::vector<int64_t> hashes;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << job[rank].message;
    hashes.push_back(job[rank].times[kHash]);
  }
  return hashes;
}

inline void expect_equal_bits(Job& job, const std::vector<int64_t>& expected) {
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << "rank " << rank << ": " << job[rank].message;
    EXPECT_TRUE(exited_well(job.status(rank)));
    EXPECT_EQ(expected[static_cast<size_t>(rank)], job[rank].times[kHash])
        << "rank " << rank << ": values or states differ";
  }
  expect_nothing_open(job);
}

}  // namespace meron::test
