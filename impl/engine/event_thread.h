// SPDX-License-Identifier: Apache-2.0
// A descriptor that becomes readable when an operation of the context may have advanced, for event
// loops: epoll, asyncio, tokio. The engine advances operations in calls of the trainer's, so a
// thread waits for peers' signs and writes to the descriptor; it advances nothing itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "os/event_fd.h"

namespace meron {

class Context;

class EventThread {
 public:
  // The context outlives it. MERON_E_NO_MEMORY, MERON_E_IO.
  static Result<std::unique_ptr<EventThread>> start(Context& context);
  // Makes the descriptor readable a last time, then closes it.
  ~EventThread();
  EventThread(const EventThread&) = delete;
  EventThread& operator=(const EventThread&) = delete;

  int descriptor() const { return event_.get(); }
  // An operation was begun. Does not wait.
  void begun();
  // The descriptor is not readable until the next sign. Call before the operations are looked at.
  void clear() const { event_.clear(); }

 private:
  EventThread(Context& context, EventFd event);
  void run();
  // While some operation is under way.
  void watch();

  Context& context_;
  const EventFd event_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards work_; a leaf
  std::condition_variable wake_;
  bool work_ = false;
  std::thread thread_;
};

}  // namespace meron
