// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/stream.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace meron::emulated {

uint64_t Event::recorded() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

void Event::come(uint64_t point) {
  {
    const std::lock_guard lock(mutex_);
    if (point > come_) come_ = point;
  }
  changed_.notify_all();
}

bool Event::has_come(uint64_t point) {
  const std::lock_guard lock(mutex_);
  return come_ >= point;
}

void Event::wait(uint64_t point) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return come_ >= point; });
}

uint64_t Event::last() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

Stream::Stream(int32_t device) : device_(device) {
  // Signals are the program's: a thread has the mask of the one that makes it.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "meron-stream");
    run();
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::ask(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(work));
    ++asked_count_;
  }
  changed_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  const uint64_t until = asked_count_;
  changed_.wait(lock, [&] { return done_count_ >= until; });
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !asked_.empty() || ending_; });
    if (asked_.empty()) return;
    auto work = std::move(asked_.front());
    asked_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // free its captures before waiters see it as done
    lock.lock();
    ++done_count_;
    changed_.notify_all();
  }
}

}  // namespace meron::emulated
