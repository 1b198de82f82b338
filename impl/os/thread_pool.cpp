// SPDX-License-Identifier: Apache-2.0
#include "os/thread_pool.h"

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/held.h"
#include "os/futex.h"
#include "os/numa.h"
#include "os/threads.h"

namespace meron {
namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

}  // namespace

ThreadPool::ThreadPool(int threads, std::vector<int> cpus)
    : threads_(std::max(threads, 1)), cpus_(std::move(cpus)) {}

ThreadPool::~ThreadPool() {
  if (workers_.empty()) return;
  stop_.store(true);
  round_.fetch_add(1);
  futex_wake(&round_, kWakeAll);
  for (std::thread& worker : workers_) worker.join();
}

// The parts of workers that the system refuses stay on the caller.
void ThreadPool::start() {
  started_ = true;
  const MaskSignalsScope masked;
  try {
    for (int part = 1; part < threads_; ++part) {
      workers_.emplace_back([this, part] {
        begin_thread("meron-compute");
        // If these are no longer allowed, it runs anywhere, only slower.
        if (!cpus_.empty()) (void)pin_thread_to(cpus_).ok();
        work(part);
      });
    }
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
}

void ThreadPool::work(int part) {
  uint32_t seen = 0;
  while (true) {
    uint32_t round = round_.load();
    while (round == seen) {
      futex_wait(&round_, seen, kForever);
      round = round_.load();
    }
    seen = round;
    if (stop_.load()) return;
    if (part < parts_) (*body_)(part);
    if (pending_.fetch_sub(1) == 1) futex_wake(&pending_, 1);
  }
}

void ThreadPool::run(int parts, const std::function<void(int)>& body) {
  std::unique_lock running(run_, std::defer_lock);
  if (parts > 1 && !running.try_lock()) {
    for (int part = 0; part < parts; ++part) body(part);
    return;
  }
  if (parts > 1) {
    if (!started_) start();
    body_ = &body;
    parts_ = parts;
    pending_.store(static_cast<uint32_t>(workers_.size()));
    round_.fetch_add(1);
    futex_wake(&round_, kWakeAll);
  }
  if (parts > 0) body(0);
  if (parts > 1) {
    for (int part = static_cast<int>(workers_.size()) + 1; part < parts; ++part) body(part);
    for (uint32_t left = pending_.load(); left != 0; left = pending_.load()) {
      futex_wait(&pending_, left, kForever);
    }
  }
}

int ThreadPool::for_range(uint64_t begin, uint64_t end, uint64_t grain, uint64_t inline_below,
                          const std::function<void(int, uint64_t, uint64_t)>& body) {
  const uint64_t size = end - begin;
  if (size == 0) return 0;
  if (size >= inline_below) expect_unheld("a long loop");
  const uint64_t grains = (size + grain - 1) / grain;
  const int parts =
      size < inline_below
          ? 1
          : static_cast<int>(std::min<uint64_t>(grains, static_cast<uint64_t>(threads_)));
  const auto cut = [&](int part) {
    const uint64_t index = grains * static_cast<uint64_t>(part) / static_cast<uint64_t>(parts);
    return std::min(end, begin + index * grain);
  };
  run(parts, [&](int part) { body(part, cut(part), cut(part + 1)); });
  return parts;
}

}  // namespace meron
