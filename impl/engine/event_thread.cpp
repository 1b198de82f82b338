// SPDX-License-Identifier: Apache-2.0
#include "engine/event_thread.h"

#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/context.h"
#include "os/threads.h"

namespace meron {
namespace {

// Longest time between two signs while an operation is under way: whoever polls then also checks
// peers and deadlines. Nothing rings for copies of a device and for messages between nodes.
constexpr int64_t kSignNs = 20 * kNanosPerMilli;
constexpr int64_t kUnannouncedNs = kNanosPerMilli;
// Shortest time between two signs, so that busy peers do not occupy a core of this rank.
constexpr int64_t kSignPauseNs = 100'000;

void sleep_for(int64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

}  // namespace

Result<std::unique_ptr<EventThread>> EventThread::start(Context& context) {
  MERON_ASSIGN(EventFd event, EventFd::create());
  std::unique_ptr<EventThread> made(new EventThread(context, std::move(event)));
  try {
    const MaskSignalsScope masked;
    made->thread_ = std::thread([events = made.get()] { events->run(); });
  } catch (const std::system_error&) {
    return Error(MERON_E_NO_MEMORY, "the system gives no memory for the thread of the descriptor",
                 "free memory, or raise the limit on threads (ulimit -u)");
  }
  return made;
}

EventThread::EventThread(Context& context, EventFd event)
    : context_(context), event_(std::move(event)) {}

EventThread::~EventThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_one();
  context_.transport().ring();
  thread_.join();
  event_.signal();
}

void EventThread::begun() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(work_, true)) return;
  }
  wake_.notify_one();
}

void EventThread::run() {
  begin_thread("meron-events");
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_.load() || work_; });
      if (stop_.load()) return;
      work_ = false;
    }
    watch();
  }
}

// A ring after a Sleeper was made ends its sleep. So the next Sleeper is made before each sign: a
// later ring gives another sign, and a poll after this one sees the effects of earlier rings.
void EventThread::watch() {
  Transport& transport = context_.transport();
  // A link sleeps in a function of the trainer's, which this thread must not call.
  const bool rings = transport.link() == nullptr;
  const int64_t longest = rings && !context_.rank().device ? kSignNs : kUnannouncedNs;
  std::optional<Transport::Sleeper> sleeper;
  if (rings) sleeper.emplace(transport);
  event_.signal();
  while (!stop_.load() && context_.some_under_way()) {
    if (rings) {
      sleep_for(kSignPauseNs);
      sleeper->sleep(longest);
      sleeper.emplace(transport);
    } else {
      sleep_for(longest);
    }
    event_.signal();
  }
}

}  // namespace meron
