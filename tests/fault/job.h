// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as children of the test, which starts, stops and kills them and reads what
// they saw from shared memory. The test's own process never calls Meron.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <thread>

#include "tests/fault/rank.h"

namespace meron::test {

// A rank's report to the test. All but `mark` is plain memory: read it after the rank has ended.
struct Report {
  std::atomic<int> mark;  // how far it is, in the test's own numbers
  int ended;              // 1: the rank's function returned, or threw a CallFailed
  meron_status status;    // of the call that ended it; MERON_OK: none did
  int32_t rank, peer;     // as the error says
  int64_t failed_ns;
  int64_t times[8];  // the test's own
  int32_t numbers[8];
  char function[64], operation[128], message[2048], advice[256], note[512];
};

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const size_t count = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), count);
  to[count] = '\0';
}

inline void record(Report& report, const CallFailed& failed) {
  report.status = failed.status;
  report.rank = failed.rank;
  report.peer = failed.peer;
  report.failed_ns = failed.when_ns;
  copy_text(report.function, failed.function);
  copy_text(report.operation, failed.operation);
  copy_text(report.message, failed.message);
  copy_text(report.advice, failed.advice);
}

// A /tmp and a /dev/shm of the ranks' own, empty at first: what is in them afterwards was left
// there by the ranks. Where the host allows no such thing, files with "meron" in their names are
// looked for in the real ones.
class Jail {
 public:
  explicit Jail(const char* shm_size = "size=64m") : shm_size_(shm_size) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    std::fflush(nullptr);
    holder_ = fork();
    if (holder_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char answer = make() ? '1' : '0';
      (void)!write(ready[1], &answer, 1);
      while (true) pause();
    }
    char answer = '0';
    if (read(ready[0], &answer, 1) == 1) private_ = answer == '1';
    close(ready[0]);
    close(ready[1]);
    if (!private_) before_ = names();
  }
  ~Jail() {
    if (holder_ <= 0) return;
    kill(holder_, SIGKILL);
    waitpid(holder_, nullptr, 0);
  }
  Jail(const Jail&) = delete;
  Jail& operator=(const Jail&) = delete;

  bool is_private() const { return private_; }

  // In a rank, before anything else.
  void enter() const {
    if (!private_) return;
    // A sanitizer's own thread shares the process' root, with which setns would refuse.
    (void)!unshare(CLONE_FS);
    for (const char* kind : {"user", "mnt"}) {
      if (geteuid() == 0 && std::strcmp(kind, "user") == 0) continue;
      const int fd = open(("/proc/" + std::to_string(holder_) + "/ns/" + kind).c_str(), O_RDONLY);
      if (fd < 0 || setns(fd, 0) != 0) {
        std::perror("cannot enter the ranks' own /tmp");
        _exit(4);
      }
      close(fd);
    }
  }

  // Names of the files that were left in them, sorted.
  std::vector<std::string> leftovers() const {
    std::vector<std::string> left;
    for (const std::string& name : names()) {
      if (!std::binary_search(before_.begin(), before_.end(), name)) left.push_back(name);
    }
    return left;
  }

 private:
  static bool write_file(const char* path, const std::string& text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool done =
        fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (fd >= 0) close(fd);
    return done;
  }
  bool make() const {
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (uid != 0) {
      const std::string user = std::to_string(uid), group = std::to_string(gid);
      if (!write_file("/proc/self/setgroups", "deny") ||
          !write_file("/proc/self/uid_map", user + " " + user + " 1") ||
          !write_file("/proc/self/gid_map", group + " " + group + " 1")) {
        return false;
      }
    }
    return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("tmpfs", "/tmp", "tmpfs", 0, "size=64m") == 0 &&
           mount("tmpfs", "/dev/shm", "tmpfs", 0, shm_size_) == 0;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    const std::string root = private_ ? "/proc/" + std::to_string(holder_) + "/root" : "";
    for (const char* folder : {"/tmp/", "/dev/shm/"}) {
      DIR* const dir = opendir((root + folder).c_str());
      if (dir == nullptr) continue;
      while (const dirent* entry = readdir(dir)) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        if (private_ || name.find("meron") != std::string::npos) all.push_back(folder + name);
      }
      closedir(dir);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  const char* shm_size_;
  pid_t holder_ = -1;
  bool private_ = false;
  std::vector<std::string> before_;
};

// The running ranks: processes (shm, self) or, for local, threads of one process.
class Job {
 public:
  using Main = std::function<void(int rank, Report& report)>;

  Job(int ranks, const Main& main, bool threads = false, const Jail* jail = nullptr)
      : reports_(static_cast<size_t>(ranks)), threads_(threads) {
    std::fflush(nullptr);
    for (int process = 0; process < (threads ? 1 : ranks); ++process) {
      const pid_t child = fork();
      if (child < 0) {  // never signal -1, which is everybody
        std::perror("fork");
        std::abort();
      }
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (jail != nullptr) jail->enter();
        if (threads) {
          std::vector<std::thread> all;
          for (int rank = 0; rank < ranks; ++rank) {
            all.emplace_back([&, rank] { run(main, rank); });
          }
          for (std::thread& each : all) each.join();
        } else {
          run(main, process);
        }
        std::fflush(nullptr);
        _exit(0);
      }
      children_.push_back(child);
      statuses_.push_back(-1);
    }
  }
  // Nothing of a job outlives it, also where a test ends early.
  ~Job() { (void)wait(0); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Report& operator[](int rank) { return reports_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(reports_.size()); }
  pid_t pid(int rank) const { return children_[static_cast<size_t>(rank)]; }
  void signal(int rank, int number) { kill(pid(rank), number); }
  // As waitpid gave it, once the rank has ended.
  int status(int rank) const { return statuses_[threads_ ? 0 : static_cast<size_t>(rank)]; }

  // Until every rank's mark is at least `mark`. False when that took longer than `limit_ns`, or a
  // rank ended before.
  bool reached(int mark, int64_t limit_ns = 60 * kSecond) {
    const int64_t until = now_ns() + limit_ns;
    for (int rank = 0; rank < ranks(); ++rank) {
      while ((*this)[rank].mark.load() < mark) {
        if (now_ns() > until || (*this)[rank].ended != 0) return false;
        sleep_ns(kMilli / 5);
      }
    }
    return true;
  }

  // Until all ranks have ended. Those that have not after `limit_ns` are killed: false.
  bool wait(int64_t limit_ns) {
    const int64_t until = now_ns() + limit_ns;
    while (reap() > 0) {
      if (now_ns() > until) {
        for (size_t i = 0; i < children_.size(); ++i) {
          if (statuses_[i] != -1) continue;
          kill(children_[i], SIGKILL);
          waitpid(children_[i], &statuses_[i], 0);
        }
        return false;
      }
      sleep_ns(kMilli / 5);
    }
    return true;
  }

 private:
  void run(const Main& main, int rank) {
    Report& report = reports_[static_cast<size_t>(rank)];
    try {
      main(rank, report);
    } catch (const CallFailed& failed) {
      record(report, failed);
    } catch (const std::exception& failed) {
      std::fprintf(stderr, "rank %d: %s\n", rank, failed.what());
      std::fflush(stderr);
      _exit(5);
    }
    report.ended = 1;
  }
  size_t reap() {
    size_t left = 0;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (statuses_[i] != -1) continue;
      if (waitpid(children_[i], &statuses_[i], WNOHANG) == 0) {
        statuses_[i] = -1;
        ++left;
      }
    }
    return left;
  }

  Shared<Report> reports_;
  std::vector<pid_t> children_;
  std::vector<int> statuses_;
  bool threads_;
};

inline bool exited_well(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The seed of a test: MERON_TEST_SEED, or the same in every run.
inline uint64_t test_seed() {
  const char* given = std::getenv("MERON_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 20261121;
  std::printf("seed: MERON_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

struct Random {
  explicit Random(uint64_t seed) : engine(seed) {}
  // 0 to below - 1.
  int below(int bound) {
    return static_cast<int>(engine() % static_cast<uint64_t>(std::max(bound, 1)));
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int>(from.size())))];
  }
  std::mt19937_64 engine;
};

// Times of one kind, printed as "p50, p99, max".
struct Times {
  std::vector<int64_t> all;
  void add(int64_t ns) { all.push_back(ns); }
  int64_t quantile(double q) {
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[static_cast<size_t>(q * static_cast<double>(all.size() - 1))];
  }
  void print(const char* what) {
    std::printf("%s: %zu, p50 %.1f ms, p99 %.1f ms, max %.1f ms\n", what, all.size(),
                static_cast<double>(quantile(0.5)) / 1e6, static_cast<double>(quantile(0.99)) / 1e6,
                static_cast<double>(quantile(1.0)) / 1e6);
    std::fflush(stdout);
  }
};

}  // namespace meron::test
