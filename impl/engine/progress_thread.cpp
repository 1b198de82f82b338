// SPDX-License-Identifier: Apache-2.0
#include "engine/progress_thread.h"

#include <chrono>
#include <new>
#include <thread>

#include "engine/context.h"
#include "os/threads.h"

namespace meron {
namespace {

// While a thread of the trainer's waits, it does the work.
constexpr int64_t kStandAsideNs = kNanosPerMilli;
constexpr int64_t kIdleNs = kNanosPerMilli;

}  // namespace

ProgressThread::ProgressThread(Context& context) : context_(context) {
  const MaskSignalsScope masked;
  thread_ = std::thread([this] { run(); });
}

ProgressThread::~ProgressThread() {
  stop_.store(true);
  thread_.join();
}

void ProgressThread::run() {
  begin_thread("meron-progress");
  while (!stop_.load()) {
    if (context_.waiters() > 0) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kStandAsideNs));
      continue;
    }
    // A failure here fails the operation, and its waiter gets the error.
    try {
      if (!context_.progress().ok()) return;
      context_.transport().link()->idle(kIdleNs);
    } catch (const std::bad_alloc&) {
      // An operation that lacks memory ends by itself; what else does is tried again.
      std::this_thread::sleep_for(std::chrono::nanoseconds(kIdleNs));
    }
  }
}

}  // namespace meron
