// SPDX-License-Identifier: Apache-2.0
// How many trials a run makes, what it counted, and how a folder of checkpoints is judged.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/fault/checkpoint/stepped_model.h"

namespace meron::test {

namespace fs = std::filesystem;

// Trials of a run: a fixed share of the full campaign, or with MERON_FAULT_SHARE=1 all of it
// (tools/test --full fault).
inline int trials_of(int whole) {
  const char* const given = std::getenv("MERON_FAULT_SHARE");
  const double share = given != nullptr ? std::strtod(given, nullptr) : kSanitized ? 0.005 : 0.02;
  return std::max(1, static_cast<int>(whole * share));
}
inline bool whole_campaign() {
  const char* const given = std::getenv("MERON_FAULT_SHARE");
  return given != nullptr && std::strtod(given, nullptr) >= 1.0;
}

// Counts the outcomes of one class of faults: a line of JSON in the file MERON_FAULT_REPORT.
class Tally {
 public:
  explicit Tally(std::string name) : name_(std::move(name)) {}
  int& operator[](const std::string& outcome) { return counts_[outcome]; }
  ~Tally() {
    if (counts_.empty()) return;  // skipped
    std::string text;
    for (const auto& [outcome, count] : counts_) {
      text += (text.empty() ? "\"" : ", \"") + outcome + "\": " + std::to_string(count);
    }
    std::printf("%s: {%s}\n", name_.c_str(), text.c_str());
    std::fflush(stdout);
    const char* const path = std::getenv("MERON_FAULT_REPORT");
    if (path == nullptr) return;
    std::ofstream(path, std::ios::app)
        << "{\"class\": \"" << name_
        << "\", \"failures\": " << (testing::Test::HasFailure() ? 1 : 0) << ", \"counts\": {"
        << text << "}}\n";
  }

 private:
  std::string name_;
  std::map<std::string, int> counts_;
};

// The folder of files and images for tests that are not about the drive: in memory, if there is
// space.
inline std::string memory_folder() {
  std::error_code error;
  const auto space = fs::space("/dev/shm", error);
  return !error && space.available > (uint64_t{1} << 30) ? "/dev/shm"
                                                         : fs::temp_directory_path().string();
}

// An empty folder that goes with all that is in it.
class Scratch {
 public:
  explicit Scratch(const std::string& where = memory_folder()) {
    path_ = where + "/meron-fault-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Until `rank` saves, and has reported `step` as saved (0: none). False if it has ended before.
inline bool wait_until_saved(Job& job, int rank, uint64_t step) {
  const int64_t limit = now_ns() + 60 * kSecond;
  while (__atomic_load_n(&job[rank].numbers[0], __ATOMIC_RELAXED) == 0 ||
         static_cast<uint64_t>(job[rank].mark.load()) < step) {
    siginfo_t ended{};
    const auto pid = static_cast<id_t>(job.pid(rank));
    if (waitid(P_PID, pid, &ended, WEXITED | WNOWAIT | WNOHANG) != 0 || ended.si_pid != 0 ||
        now_ns() > limit) {
      return false;
    }
    sleep_ns(kMilli / 10);
  }
  return true;
}

// Result of a load by a new world.
struct Loaded {
  meron_status status = MERON_OK;
  uint64_t step = 0;  // 0: none
  std::string words;  // of the error, or what differs
  bool exact = false;
};

// Loads by `ranks` new ranks; with `then_save` they save that step once more under its own name, so
// that leftovers are swept.
inline Loaded load_anew(const std::string& folder, int ranks, const SavedModel& model,
                        const std::string& name = "", uint64_t then_save = 0) {
  const Open open = world_of(ranks);
  Job job(ranks, [&](int rank, Report& report) {
    SteppedSession session(open, rank, model);
    const auto step = session.load(folder, name);
    report.times[0] = static_cast<int64_t>(step);
    copy_text(report.note, session.difference(step));
    if (then_save != 0) {
      session.fill(then_save);
      session.save(folder, step_name(then_save), then_save);
    }
    session.barrier();
    session.close();
  });
  Loaded loaded;
  if (!job.wait(120 * kSecond)) {
    loaded.status = MERON_E_TIMEOUT;
    loaded.words = "the load hung";
    return loaded;
  }
  loaded.exact = true;
  for (int rank = 0; rank < ranks; ++rank) {
    const Report& report = job[rank];
    if (report.ended == 0) {
      loaded.status = MERON_E_INTERNAL;
      loaded.words =
          "rank " + std::to_string(rank) + " crashed, status " + std::to_string(job.status(rank));
      loaded.exact = false;
      return loaded;
    }
    if (report.status < 0) loaded.status = report.status;
    if (report.status < 0) loaded.words += std::string(report.message) + "; ";
    if (report.note[0] != '\0') loaded.words += std::string(report.note) + "; ";
    loaded.exact = loaded.exact && report.status >= 0 && report.note[0] == '\0';
    loaded.step = static_cast<uint64_t>(report.times[0]);
  }
  return loaded;
}

// Names in a folder that no save may leave behind.
inline std::vector<std::string> leftovers_of(const std::string& folder) {
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.front() == '.' && name != ".saving.lock") left.push_back(name);
    if (name.front() != '.' && entry.is_directory() && !fs::exists(entry.path() / "meron.json")) {
      left.push_back(name + " without a manifest");
    }
  }
  return left;
}

}  // namespace meron::test
