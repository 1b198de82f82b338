// SPDX-License-Identifier: Apache-2.0
// A collective operation that was begun and is driven by whoever waits.
#pragma once

#include <cstdint>
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
  Operation(Channel& channel, Deadline deadline)
      : channel_(channel), deadline_(deadline), begun_ns_(now_ns()), inspected_ns_(begun_ns_) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Does what can be done without waiting. True when the operation has ended. Called under the
  // context's lock, not after the end, not after an error.
  virtual Result<bool> advance() = 0;
  // Members of the channel (by index) that have not arrived, for messages; empty when unknown.
  virtual std::vector<int> missing() const = 0;
  // "gather of unit 'layer.3'", for messages.
  virtual std::string describe() const = 0;
  // Staged operations of one channel share its staging and therefore advance in order.
  virtual bool staged() const { return false; }

  Channel& channel() const { return channel_; }
  Deadline deadline() const { return deadline_; }
  uint64_t sequence() const { return sequence_; }
  void set_sequence(uint64_t sequence) { sequence_ = sequence; }

  int64_t begun_ns() const { return begun_ns_; }
  // When its peers were last looked at, by whichever call: many short waits must not put it off.
  int64_t inspected_ns() const { return inspected_ns_; }
  void set_inspected_ns(int64_t when) { inspected_ns_ = when; }
  // Whether its user was told that it takes long. True once.
  bool warn_once() { return !std::exchange(warned_, true); }

  bool ended() const { return ended_; }
  const std::optional<Error>& error() const { return error_; }
  void finish() { ended_ = true; }
  void finish(Error error) {
    ended_ = true;
    error_ = std::move(error);
  }

 protected:
  Channel& channel_;

 private:
  Deadline deadline_;
  int64_t begun_ns_;
  int64_t inspected_ns_;
  uint64_t sequence_ = 0;
  bool warned_ = false;
  bool ended_ = false;
  std::optional<Error> error_;
};

}  // namespace meron
