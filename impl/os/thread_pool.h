// SPDX-License-Identifier: Apache-2.0
// A few threads for loops over memory. Own code rather than a library's because the engine's
// threads must mask all signals, must not run between calls, and must not meet another runtime's
// after fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace meron {

// Loops shorter than this many elements are not worth waking a thread for.
inline constexpr uint64_t kInlineElements = 64 << 10;

class ThreadPool {
 public:
  // `threads` in total, the caller's included: 1 starts none. Workers start at the first run that
  // needs them, on `cpus` if some are given. The caller's thread is not pinned. If the system
  // refuses some threads, the caller does their parts.
  explicit ThreadPool(int threads, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Runs body(part) for part 0 .. parts - 1, each once, part 0 on the caller; returns when all have
  // ended. `parts` is at most threads(). Any thread may call it: during one run, others stay
  // on their callers, part after part. `body` must not throw.
  void run(int parts, const std::function<void(int)>& body);

  // Cuts [begin, end) into at most threads() pieces of about equal size at multiples of `grain`
  // from `begin`, runs body(part, piece_begin, piece_end) on them, and returns the number of
  // pieces. A range below `inline_below` stays on the caller; a longer one takes too long for a
  // lock to be held (base/held.h).
  int for_range(uint64_t begin, uint64_t end, uint64_t grain, uint64_t inline_below,
                const std::function<void(int, uint64_t, uint64_t)>& body);

 private:
  void start();
  void work(int part);

  int threads_;
  const std::vector<int> cpus_;
  std::mutex run_;  // held while the workers are at work; only tried
  bool started_ = false;
  std::vector<std::thread> workers_;
  const std::function<void(int)>* body_ = nullptr;
  int parts_ = 0;
  std::atomic<uint32_t> round_{0};  // counted up to start a run; workers sleep on it
  std::atomic<uint32_t> pending_{
      0};  // workers that have not ended the run; the caller sleeps on it
  std::atomic<bool> stop_{false};
};

}  // namespace meron
