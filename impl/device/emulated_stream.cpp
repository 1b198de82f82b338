// SPDX-License-Identifier: Apache-2.0
#include "device/emulated_stream.h"

#include <utility>

#include "os/threads.h"

namespace meron {

uint64_t EmulatedEvent::recorded() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

void EmulatedEvent::come(uint64_t point) {
  {
    const std::lock_guard lock(mutex_);
    if (point > come_) come_ = point;
  }
  changed_.notify_all();
}

bool EmulatedEvent::has_come(uint64_t point) {
  const std::lock_guard lock(mutex_);
  return come_ >= point;
}

void EmulatedEvent::wait(uint64_t point) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return come_ >= point; });
}

uint64_t EmulatedEvent::last() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

EmulatedStream::EmulatedStream(int32_t device) : device_(device) {
  const MaskSignalsScope masked;
  thread_ = std::thread([this] {
    set_thread_name("meron-stream");
    run();
  });
}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EmulatedStream::ask(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(work));
    ++asked_count_;
  }
  changed_.notify_all();
}

void EmulatedStream::synchronize() {
  std::unique_lock lock(mutex_);
  const uint64_t until = asked_count_;
  changed_.wait(lock, [&] { return done_count_ >= until; });
}

void EmulatedStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !asked_.empty() || ending_; });
    if (asked_.empty()) return;
    auto work = std::move(asked_.front());
    asked_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it keeps goes before anybody is told that it is done
    lock.lock();
    ++done_count_;
    changed_.notify_all();
  }
}

}  // namespace meron
