// SPDX-License-Identifier: Apache-2.0
// One rank of a communicator: its state, and the order of its launches. The streams' threads do the
// work: a thread blocks at a launch until its bytes are sent and its peers' bytes have arrived.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "modules/emulated/peers.h"
#include "modules/emulated/transfer.h"

namespace meron::emulated {

class Rank {
 public:
  // `alone`: does not notify peers of an abort, and ignores their ends.
  Rank(std::string name, int32_t rank, int32_t size, int32_t device, bool alone)
      : rank_(rank), size_(size), device_(device), alone_(alone), peers_(name, rank, size, alone) {}

  State open();
  // MERON_IN_PROGRESS: some have not arrived.
  State state();
  // Counts a launch for a later call of `run`. Returns its number, the same on every rank.
  uint64_t ask();
  // Called by the thread of a stream. Earlier launches of other streams run first.
  void run(uint64_t number, const Launch& launch);
  // Waits until all that was asked for has run.
  State drain(std::chrono::milliseconds timeout);
  // Returns when no launch moves bytes any more.
  void abort();
  // After drain or abort.
  void leave();

 private:
  bool has_ended() const { return failure_.status < 0 || aborted_; }
  State look();
  void fail(State failure);
  void stop(const State& told);
  State move(uint64_t number, const Launch& launch);
  State exchange(uint64_t number, const Launch& launch);
  State look_at(uint64_t number, const Transfer& transfer);

  const int32_t rank_, size_, device_;
  const bool alone_;
  Descriptor wake_;  // readable once `stopped_`: ends a wait for sockets
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Peers peers_;  // sockets for bytes stay as they are while a launch runs
  State failure_;
  bool aborted_ = false, running_ = false;
  uint64_t asked_ = 0, done_ = 0;  // launches
};

}  // namespace meron::emulated
