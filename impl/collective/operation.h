// SPDX-License-Identifier: Apache-2.0
// A collective operation that has begun. Waiting threads advance it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace meron {

class Channel;

class Operation {
 public:
  Operation(Channel& channel, Deadline deadline) : channel_(channel), deadline_(deadline) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Does what can be done without waiting. True when the operation has ended. Called under the
  // context's lock, by one thread at a time, not after the end, not after an error. Long kernels
  // run in a Recess: what they work on must be kept from other operations and from calls by the
  // states of units, as this operation has set them.
  virtual Result<bool> advance() = 0;
  // Members of missing_in() (by index) that have not arrived; empty when unknown.
  virtual std::vector<int> missing() const = 0;
  // The channel that breaks if they never arrive.
  virtual Channel& missing_in() const { return channel_; }
  // An operation that this rank began before and must end first, if known: dead peers are looked
  // for in that one.
  virtual std::shared_ptr<Operation> behind() const { return nullptr; }
  // Describes the storage of this rank that it waits for, for messages; empty if none.
  virtual std::string waits_for_drive() const { return {}; }
  // True if a thread of the engine checks its peers and its deadline.
  virtual bool looked_after() const { return false; }
  // "gather of unit 'layer.3'", for messages.
  virtual std::string describe() const = 0;
  // If ranks share no memory: true if it may advance before all members are known to have begun the
  // same call. It then checks that itself, before its effects can be seen.
  virtual bool begins_alone() const { return false; }
  // Staged operations of one channel share its staging and therefore advance in order.
  virtual bool staged() const { return false; }

  Channel& channel() const { return channel_; }
  Deadline deadline() const { return deadline_; }
  // For an operation that began ahead of its use: the deadline of the first wait. Called under the
  // context's lock; afterwards the deadline does not change.
  void begin_use(Deadline deadline) {
    if (first_waited_ns_ == 0) deadline_ = deadline;
  }
  uint64_t sequence() const { return sequence_; }
  void set_sequence(uint64_t sequence) { sequence_ = sequence; }

  // True if it is time to check its peers and to report a slow wait. The time counts from its first
  // wait by any call, so that many short waits do not postpone it.
  bool inspection_due(int64_t now, int64_t period_ns) {
    if (inspected_ns_ == 0) first_waited_ns_ = inspected_ns_ = now;
    if (now - inspected_ns_ < period_ns) return false;
    inspected_ns_ = now;
    return true;
  }
  // The log's report of a slow wait: true once there is one, and the ranks that it named.
  bool reported() const { return reported_; }
  const std::string& reported_for() const { return reported_for_; }
  void set_reported(std::string whom) {
    reported_ = true;
    reported_for_ = std::move(whom);
  }
  // Time between the first wait and the last inspection, or 0 if shorter than `patience_ns`.
  // Restarts the time, so that only one of several waiting threads counts it.
  int64_t take_slow_wait(int64_t patience_ns) {
    const int64_t waited = inspected_ns_ - first_waited_ns_;
    if (waited < patience_ns) return 0;
    first_waited_ns_ = inspected_ns_;
    return waited;
  }

  // Time since its first wait; 0 if it has had none.
  int64_t waited_ns(int64_t now) const {
    return first_waited_ns_ == 0 ? 0 : now - first_waited_ns_;
  }
  bool was_waited_for() const { return first_waited_ns_ != 0; }

  // True after many calls over a while. Until then, messages that a remote peer sent before it left
  // may still arrive, phase by phase.
  bool suspected_for_long(int64_t now) {
    if (suspicions_++ == 0) suspected_ns_ = now;
    return suspicions_ > kSuspicions && now - suspected_ns_ >= kSuspicionNs;
  }

  // True while a thread is in its advance(), which may release the lock to compute. Others must not
  // advance it then.
  bool running() const { return running_; }
  void set_running(bool running) { running_ = running; }

  // True once its user has received its error.
  bool delivered() const { return delivered_; }
  void set_delivered() { delivered_ = true; }

  bool ended() const { return ended_; }
  const std::optional<Error>& error() const { return error_; }
  void finish() { ended_ = true; }
  void finish(Error error) {
    ended_ = true;
    error_ = std::move(error);
  }

 protected:
  static constexpr int kSuspicions = 10;
  static constexpr int64_t kSuspicionNs = 200'000'000;

  Channel& channel_;

 private:
  Deadline deadline_;
  int64_t first_waited_ns_ = 0;
  int64_t inspected_ns_ = 0;
  uint64_t sequence_ = 0;
  bool reported_ = false;
  std::string reported_for_;
  bool running_ = false;
  int suspicions_ = 0;
  int64_t suspected_ns_ = 0;
  bool delivered_ = false;
  bool ended_ = false;
  std::optional<Error> error_;
};

}  // namespace meron
