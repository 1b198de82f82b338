// SPDX-License-Identifier: Apache-2.0
// Where the ranks of an emulated communicator meet: threads of one process. The streams' threads do
// the work: one that has come to a launch waits there for the streams of all other ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "meron/backend.h"

namespace meron::emulated {

// How a communicator is, of one rank's view.
struct State {
  meron_status status = MERON_OK;
  std::string text;
};

struct GatherPart {
  const std::byte* from;
  std::byte* to;
  uint64_t bytes;
};

// All that one rank asks for at a time.
struct Launch {
  std::vector<GatherPart> gathers;
  std::vector<meron_exchange_piece> pieces;
  bool fails = false;  // as the settings ask
};

class Meeting {
 public:
  explicit Meeting(int32_t size) : size_(size), aborted_(size), asked_(size), done_(size) {}

  // A rank comes, with the size that it was told.
  State join(int32_t rank, int32_t size);
  State state(int32_t rank);
  // Counts a launch that `run` will be called for; its number, the same on every rank.
  uint64_t ask(int32_t rank);
  // By the thread of a stream: returns when all ranks are done with launch `number`, so that what
  // was sent may be changed; or when the rank has nothing more to wait for.
  void run(int32_t rank, int32_t device, uint64_t number, const Launch& launch);
  // Waits until all that the rank has asked for has run.
  State drain(int32_t rank, std::chrono::milliseconds timeout);
  // `alone`: the peers do not hear of it.
  void abort(int32_t rank, bool alone);

 private:
  struct Step {
    std::vector<const Launch*> launches;  // by rank; valid while that rank is in `run`
    int32_t arrived = 0, copying = 0, copied = 0, left = 0;
    bool dead = false;  // a rank left early: nobody may begin to copy
  };
  bool has_ended(int32_t rank) const { return failure_.status < 0 || aborted_[rank]; }
  void fail(State failure);
  State state_of(int32_t rank) const;
  State copy(int32_t rank, int32_t device, uint64_t number, const Step& step) const;

  const int32_t size_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<int32_t, bool> joined_;
  State failure_;                       // of all ranks
  std::vector<bool> aborted_;           // that rank alone
  std::vector<uint64_t> asked_, done_;  // launches, by rank
  std::map<uint64_t, Step> steps_;
};

}  // namespace meron::emulated
