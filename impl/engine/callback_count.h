// SPDX-License-Identifier: Apache-2.0
// Calls of the trainer's log and should_stop that are under way, so that a close can wait for them:
// afterwards none of them begins, and nothing uses their `user` pointers.
#pragma once

#include <atomic>

namespace meron {

class CallbackCount {
 public:
  // One call. False: the context is closed, and the function must not be called any more.
  class Entry {
   public:
    explicit Entry(CallbackCount& count) : count_(count) { count_.running_.fetch_add(1); }
    ~Entry() { count_.running_.fetch_sub(1); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    explicit operator bool() const { return !count_.ended_.load(); }

   private:
    CallbackCount& count_;
  };

  // No call begins after this. Either a call sees it, or rest() sees the call.
  void end() { ended_.store(true); }
  bool rest() const { return running_.load() == 0; }

 private:
  std::atomic<int> running_{0};
  std::atomic<bool> ended_{false};
};

}  // namespace meron
