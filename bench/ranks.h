// SPDX-License-Identifier: Apache-2.0
// What the ranks of a benchmark have in common, whichever library moves their bytes: pinning,
// buffers, batches that begin together, and the JSON that the first rank prints at the end.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace meron::bench {

[[noreturn]] inline void give_up(const std::string& message) {
  std::fprintf(stderr, "bench: %s\n", message.c_str());
  std::exit(1);
}

// Rank r runs on the r-th CPU that this process may use, and nowhere else, if there is one for
// each.
inline void pin(int rank, int ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != rank) continue;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET(cpu, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    return;
  }
}

// Private memory of a rank as an application that cares would allocate it: huge pages where they
// are granted, every page touched.
class Floats {
 public:
  explicit Floats(size_t count) : count_(count) {
    data_ = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) give_up("not enough memory for the buffers");
    madvise(data_, bytes(), MADV_HUGEPAGE);
    std::fill_n(data(), count_, 1.0f);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { munmap(data_, bytes()); }

  float* data() const { return static_cast<float*>(data_); }
  size_t count() const { return count_; }
  size_t bytes() const { return std::max<size_t>(count_, 1) * sizeof(float); }

 private:
  size_t count_;
  void* data_;
};

// The reader's pass: every element is used once. 32 partial sums keep it at the speed of memory.
inline float sum_of(const float* data, size_t count) {
  constexpr size_t kLanes = 32;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += data[i + lane];
  }
  float sum = 0;
  for (; i < count; ++i) sum += data[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Keeps the compiler from dropping work with an unused result.
template <typename T>
void use(const T& value) {
  asm volatile("" : : "g"(value) : "memory");
}

struct Effort {
  double batch_seconds = 2e-3;  // a batch has as many operations as fit
  double arm_seconds = 0.5;     // an arm has as many batches as fit, within:
  int fewest_batches = 5;
  int most_batches = 25;
};

inline constexpr Effort kQuickEffort = {1e-3, 0.0, 3, 3};

class Ranks {
 public:
  int rank = 0;
  int size = 1;
  std::function<void()> barrier;
  std::function<double(double)> largest;  // of the values that the ranks pass

  // Times back-to-back operations in batches that all ranks begin together. A batch takes as long
  // as on its slowest rank.
  void measure(const std::string& arm, size_t bytes, const Effort& effort,
               const std::function<void()>& operation) {
    constexpr int kWarmUp = 4;
    for (int i = 0; i < kWarmUp; ++i) operation();
    const double once = std::max(timed(1, operation), 1e-8);
    const int operations = static_cast<int>(std::clamp(effort.batch_seconds / once, 1.0, 20'000.0));
    const int batches = static_cast<int>(std::clamp<double>(
        effort.arm_seconds / (once * operations), effort.fewest_batches, effort.most_batches));
    Series series{arm, bytes, {}};
    for (int i = 0; i < batches; ++i) {
      const long before = interruptions();
      series.microseconds.push_back(timed(operations, operation) / operations * 1e6);
      disturbed_ += largest(static_cast<double>(interruptions() - before)) > 0 ? 1 : 0;
      ++batches_;
    }
    all_.push_back(std::move(series));
  }

  // One line of JSON.
  void print() const {
    if (rank != 0) return;
    std::printf("{\"disturbed\": %.3f, \"series\": [",
                batches_ ? double(disturbed_) / batches_ : 0);
    for (size_t s = 0; s < all_.size(); ++s) {
      std::printf("%s{\"arm\": \"%s\", \"bytes\": %zu, \"us\": [", s ? ", " : "",
                  all_[s].arm.c_str(), all_[s].bytes);
      for (size_t i = 0; i < all_[s].microseconds.size(); ++i) {
        std::printf("%s%.6g", i ? ", " : "", all_[s].microseconds[i]);
      }
      std::printf("]}");
    }
    std::printf("]}\n");
  }

 private:
  struct Series {
    std::string arm;
    size_t bytes;
    std::vector<double> microseconds;
  };

  // Number of involuntary context switches of this thread.
  static long interruptions() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }

  double timed(int operations, const std::function<void()>& operation) const {
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < operations; ++i) operation();
    const auto end = std::chrono::steady_clock::now();
    return largest(std::chrono::duration<double>(end - begin).count());
  }

  std::vector<Series> all_;
  int batches_ = 0;
  int disturbed_ = 0;
};

}  // namespace meron::bench
