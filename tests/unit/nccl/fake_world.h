// SPDX-License-Identifier: Apache-2.0
// The ranks of the library that looks like NCCL, their groups, and what goes wrong with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "modules/nccl/nccl_abi.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif
#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace meron::nccl::fake {

struct Clique;

struct Operation {
  enum Kind { gather, send, receive } kind;
  const void* from;
  void* to;
  size_t bytes;
  int peer;
};
using Group = std::vector<Operation>;

struct FakeComm {
  Clique* clique;
  int rank;
  int polls_left;  // that are still answered with "in progress"
  bool joined = true, finalized = false, aborting = false;
  uint64_t launched = 0;  // groups
  Result failed = kSuccess;
};

struct Clique {
  int size = 0;
  std::map<int, FakeComm*> ranks;
  std::map<uint64_t, std::map<int, Group>> groups;  // by number, then rank
  uint64_t moved = 0;                               // groups that were done
};

struct Settings {
  int version = FAKE_VERSION;
  int in_progress = 3;    // answers of that kind to each call
  int fail_open = 0;      // what ncclCommInitRankConfig returns
  int fail_opening = 0;   // its later result
  int fail_launch = 0;    // what ncclGroupEnd returns
  int fail_later = 0;     // a spontaneous error of every communicator
  int hang_finalize = 0;  // 1: it never ends
  int abort_waits = 0;    // 1: an abort waits for launches of the rank's other communicators
  int hang_abort = 0;     // 1: it never ends
  int no_register = 0;    // 1: registers nothing, as NCCL_LOCAL_REGISTER=0
  int no_windows = 0;     // 1: opens none, as between GPUs that do not reach each other's memory
  int no_memory = 0;      // 1: ncclMemAlloc fails
};

struct World {
  std::mutex mutex;
  Settings settings;
  int named = 0, alive = 0, registered = 0, windows = 0, allocated = 0;
  int policy = kUndefined;  // of the communicator that was opened last
  std::map<std::string, Clique> cliques;
  std::string last_error;
};

World& world();

inline Result as_result(int value) {
  return static_cast<Result>(value);
}
// Keeps a text for ncclGetLastError.
Result say(Result result, const char* text);
// The check at the begin of every call of NCCL on a communicator.
Result check_idle(const FakeComm& comm);
// Moves the groups that all ranks have launched.
void advance(Clique& clique);
bool is_waiting(const FakeComm& comm);
void forget(FakeComm* comm);
// Whether an abort has to wait: NCCL frees memory, which waits for all kernels on the device. A
// rank is a device, and communicators that abort have stopped their kernels.
bool abort_waits(const std::vector<FakeComm*>& aborted);

}  // namespace meron::nccl::fake
