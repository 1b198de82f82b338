// SPDX-License-Identifier: Apache-2.0
// A collective operation that was begun and is driven by whoever waits.
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
  // The channel that breaks where they never arrive.
  virtual Channel& missing_in() const { return channel_; }
  // What this rank has begun before and must end first, where that is known: peers are looked for
  // there.
  virtual std::shared_ptr<Operation> behind() const { return nullptr; }
  // What of this rank's own storage it waits for, for messages; empty: nothing.
  virtual std::string waits_for_drive() const { return {}; }
  // Whether a thread of the engine looks after its peers and its deadline, whoever waits for it.
  virtual bool looked_after() const { return false; }
  // "gather of unit 'layer.3'", for messages.
  virtual std::string describe() const = 0;
  // Where ranks share no memory, whether it may advance before all members are known to have begun
  // the same call. One that may checks that itself, before what it did can be seen.
  virtual bool begins_alone() const { return false; }
  // Staged operations of one channel share its staging and therefore advance in order.
  virtual bool staged() const { return false; }

  Channel& channel() const { return channel_; }
  Deadline deadline() const { return deadline_; }
  // For what was begun ahead of its use: the deadline is that of the first wait. Called under the
  // context's lock; whoever has waited reads a deadline that no longer changes.
  void begin_use(Deadline deadline) {
    if (first_waited_ns_ == 0) deadline_ = deadline;
  }
  uint64_t sequence() const { return sequence_; }
  void set_sequence(uint64_t sequence) { sequence_ = sequence; }

  // Whether its peers are to be looked at, and its user to be told that it takes long: by the time
  // since it was first waited for, by whichever call, because many short waits must not put it off.
  bool inspection_due(int64_t now, int64_t period_ns) {
    if (inspected_ns_ == 0) first_waited_ns_ = inspected_ns_ = now;
    if (now - inspected_ns_ < period_ns) return false;
    inspected_ns_ = now;
    return true;
  }
  // What the log was told of a slow wait: that it waits, and for whom.
  bool reported() const { return reported_; }
  const std::string& reported_for() const { return reported_for_; }
  void set_reported(std::string whom) {
    reported_ = true;
    reported_for_ = std::move(whom);
  }
  // How long looks have found it under way; 0 if that is less than `patience_ns`. Once: of several
  // threads that waited one accounts for it.
  int64_t take_slow_wait(int64_t patience_ns) {
    const int64_t waited = inspected_ns_ - first_waited_ns_;
    if (waited < patience_ns) return 0;
    first_waited_ns_ = inspected_ns_;
    return waited;
  }

  // Since it was first waited for; 0: it was not.
  int64_t waited_ns(int64_t now) const {
    return first_waited_ns_ == 0 ? 0 : now - first_waited_ns_;
  }
  bool was_waited_for() const { return first_waited_ns_ != 0; }

  // Whether it was so at many looks, over a while: what a peer of another node sent
  // before it left may be on its way to this rank still, phase by phase.
  bool suspected_for_long(int64_t now) {
    if (suspicions_++ == 0) suspected_ns_ = now;
    return suspicions_ > kSuspicions && now - suspected_ns_ >= kSuspicionNs;
  }

  // Whether a thread is in the middle of its advance(), which may release the lock to compute: it
  // is left alone then.
  bool running() const { return running_; }
  void set_running(bool running) { running_ = running; }

  // Whether its user has been given its error.
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
