// SPDX-License-Identifier: Apache-2.0
// Threads that are pinned to one CPU each and run a piece of work together, timed from the first
// start to the last end as the threads themselves see them. Work during which other programs had
// the CPUs is timed again.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace meron::bench {

// The slice of n elements, in multiples of `grain`, for `thread` of `threads`.
struct Slice {
  size_t begin, end;

  static Slice of(size_t n, size_t thread, size_t threads, size_t grain = 256) {
    const size_t grains = (n + grain - 1) / grain;
    return {std::min(n, grains * thread / threads * grain),
            std::min(n, grains * (thread + 1) / threads * grain)};
  }
};

class Workers {
 public:
  explicit Workers(size_t count) : ends_(count), gate_(static_cast<std::ptrdiff_t>(count) + 1) {
    const std::vector<int> cpus = allowed_cpus();
    starts_.resize(count);
    busy_.resize(count);
    failures_.resize(count);
    for (size_t t = 0; t < count; ++t) {
      threads_.emplace_back([this, t, cpu = cpus[t % cpus.size()]] {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
        loop(t);
      });
    }
  }
  ~Workers() {
    work_ = nullptr;
    gate_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  size_t count() const { return threads_.size(); }

  // Runs work(thread) on every thread; returns the seconds that it took. Wall time that no thread
  // spent on a CPU was taken by other programs: the work is then run again, `attempts` times at
  // most. run() rethrows exceptions of the work.
  double run(std::function<void(size_t)> work, int attempts = 4) {
    constexpr double kDisturbed = 0.03;
    work_ = std::move(work);
    double best = 0, least_lost = 2;
    for (int attempt = 0; attempt < attempts && least_lost > kDisturbed; ++attempt) {
      gate_.arrive_and_wait();  // all begin
      gate_.arrive_and_wait();  // all have ended
      for (std::exception_ptr& failure : failures_) {
        if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
      }
      const double seconds =
          std::chrono::duration<double>(*std::max_element(ends_.begin(), ends_.end()) -
                                        *std::min_element(starts_.begin(), starts_.end()))
              .count();
      const double lost = 1.0 - *std::max_element(busy_.begin(), busy_.end()) / seconds;
      if (lost < least_lost) best = seconds, least_lost = lost;
    }
    ++runs_;
    if (least_lost > kDisturbed) ++disturbed_;
    return best;
  }

  // The share of the runs for which the CPUs were never free of other programs.
  double disturbed() const {
    return runs_ == 0 ? 0 : static_cast<double>(disturbed_) / static_cast<double>(runs_);
  }

  static std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
      }
    }
    if (cpus.empty()) cpus.push_back(0);
    return cpus;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double cpu_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  void loop(size_t t) {
    for (;;) {
      gate_.arrive_and_wait();
      if (!work_) return;
      starts_[t] = Clock::now();
      const double before = cpu_seconds();
      try {
        work_(t);
      } catch (...) {
        failures_[t] = std::current_exception();
      }
      busy_[t] = cpu_seconds() - before;
      ends_[t] = Clock::now();
      gate_.arrive_and_wait();
    }
  }

  std::function<void(size_t)> work_;
  std::vector<Clock::time_point> starts_, ends_;
  std::vector<double> busy_;  // seconds on a CPU
  std::vector<std::exception_ptr> failures_;
  size_t runs_ = 0, disturbed_ = 0;
  std::barrier<> gate_;
  std::vector<std::thread> threads_;
};

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace meron::bench
