// SPDX-License-Identifier: Apache-2.0
// A stream of the emulated device: a thread that does its queued work in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace meron::emulated {

// Number of records of an event, and the last of them that its stream has reached.
class Event {
 public:
  uint64_t recorded();  // the number of a new point
  void come(uint64_t point);
  bool has_come(uint64_t point);
  void wait(uint64_t point);
  uint64_t last();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0, come_ = 0;
};

class Stream {
 public:
  explicit Stream(int32_t device);
  ~Stream();  // when all is done
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int32_t device() const { return device_; }
  void ask(std::function<void()> work);
  void synchronize();

 private:
  void run();

  const int32_t device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> asked_;
  uint64_t asked_count_ = 0, done_count_ = 0;
  bool ending_ = false;
  std::thread thread_;  // begins when all above is there
};

}  // namespace meron::emulated
