// SPDX-License-Identifier: Apache-2.0
// The operations of a context that were begun and have not ended, and how they advance: by
// whichever thread waits, one thread per operation at a time.
#pragma once

#include <memory>
#include <vector>

#include "base/held.h"
#include "collective/operation.h"

namespace meron {

class PendingOperations {
 public:
  // Takes the memory that the next submit() needs, which then does not fail: before the call is
  // posted.
  void make_room() {
    if (list_.size() == list_.capacity()) list_.reserve(2 * list_.size() + 8);
  }
  // Advances an operation once, and keeps it if it has not ended.
  void submit(Held& held, const std::shared_ptr<Operation>& operation);
  // Advances it once, unless another thread is in the middle of doing so.
  void advance(Held& held, Operation& operation);
  // True: some have ended.
  bool advance_all(Held& held);
  // Ends all of them with the error.
  void end_all(Held& held, const Error& error);

  const std::vector<std::shared_ptr<Operation>>& all() const { return list_; }
  // The staged operation of a channel that advances next; null: none.
  Operation* first_staged(const Held& held, const Channel& channel) const;

  // A thread that works on a group without an operation.
  class Working {
   public:
    explicit Working(PendingOperations& pending) : pending_(pending) { ++pending_.running_; }
    ~Working() { --pending_.running_; }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;

   private:
    PendingOperations& pending_;
  };
  // True if no other thread advances an operation or works on a group.
  bool others_rest(const Held& /*held*/) const { return running_ <= running_here; }
  // True if the calling thread is within an operation's advance().
  static bool within_operation() { return running_here > 0; }

 private:
  std::vector<std::shared_ptr<Operation>> list_;
  int passes_ = 0;   // threads that go through list_, from which nothing is taken meanwhile
  int running_ = 0;  // operations that compute, and threads that work; and of this thread:
  static thread_local int running_here __attribute__((tls_model("initial-exec")));
};

}  // namespace meron
