// SPDX-License-Identifier: Apache-2.0
// A library that looks like NCCL, for tests without a GPU: ranks are threads of a process, memory
// is the host's, and streams are not looked at: what a group moves has been moved when the
// communicator is no longer in progress. It refuses what NCCL refuses, a call on a communicator
// that is still in progress above all, and does wrong what fake_nccl_set asks for.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "modules/nccl/nccl_abi.h"

using meron::nccl::Config;
using meron::nccl::Result;
using meron::nccl::UniqueId;

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif
#define FAKE_API extern "C" __attribute__((visibility("default")))

// Of the clique that an id names.
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
  bool joined = true, finalized = false;
  uint64_t launched = 0;  // groups
  Result failed = meron::nccl::kSuccess;
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
  int fail_opening = 0;   // what comes of it later
  int fail_launch = 0;    // what ncclGroupEnd returns
  int fail_later = 0;     // an error that comes by itself, of every communicator
  int hang_finalize = 0;  // 1: it never ends
  int no_register = 0;    // 1: registers nothing, as NCCL_LOCAL_REGISTER=0
  int no_windows = 0;     // 1: opens none, as between GPUs that do not reach each other's memory
  int no_memory = 0;      // 1: ncclMemAlloc fails
};

struct World {
  std::mutex mutex;
  Settings settings;
  int named = 0, alive = 0, registered = 0, windows = 0, allocated = 0;
  int policy = meron::nccl::kUndefined;  // of the communicator that was opened last
  std::map<std::string, Clique> cliques;
  std::string last_error;
};

static World& world() {
  static World made;  // goes when the copy is unloaded
  return made;
}

static thread_local int group_depth = 0;
static thread_local FakeComm* group_comm = nullptr;
static thread_local Group group_operations;

static Result as_result(int value) {
  return static_cast<Result>(value);
}

static Result say(Result result, const char* text) {
  world().last_error = text;
  return result;
}

// What every call of NCCL's on a communicator begins with.
static Result check_idle(const FakeComm& comm) {
  if (comm.polls_left == 0) return meron::nccl::kSuccess;
  return say(meron::nccl::kInvalidArgument,
             "Attempt to use communicator before the previous operation returned ncclSuccess");
}

static const Operation* operation_of(const Group& group, Operation::Kind kind, int peer,
                                     size_t index) {
  for (const Operation& each : group) {
    if (each.kind == kind && each.peer == peer && index-- == 0) return &each;
  }
  return nullptr;
}

// Moves a group that all ranks have launched. The caller has checked that they have.
static Result move_group(Clique& clique, std::map<int, Group>& groups) {
  for (auto& [rank, group] : groups) {
    std::map<int, size_t> received;
    size_t gathers = 0;
    for (const Operation& each : group) {
      if (each.kind == Operation::gather) {
        for (int peer = 0; peer < clique.size; ++peer) {
          const Operation* const from = operation_of(groups[peer], Operation::gather, -1, gathers);
          if (from == nullptr || from->bytes != each.bytes) return meron::nccl::kInternalError;
          std::memmove(static_cast<char*>(each.to) + static_cast<size_t>(peer) * each.bytes,
                       from->from, each.bytes);
        }
        ++gathers;
      } else if (each.kind == Operation::receive) {
        const Operation* const from =
            operation_of(groups[each.peer], Operation::send, rank, received[each.peer]++);
        if (from == nullptr || from->bytes != each.bytes) return meron::nccl::kInternalError;
        std::memmove(each.to, from->from, each.bytes);
      }
    }
  }
  return meron::nccl::kSuccess;
}

static void advance(Clique& clique) {
  while (true) {
    const auto found = clique.groups.find(clique.moved + 1);
    if (found == clique.groups.end() || static_cast<int>(found->second.size()) < clique.size)
      return;
    const Result result = move_group(clique, found->second);
    for (auto& [rank, comm] : clique.ranks) {
      if (result != meron::nccl::kSuccess && comm != nullptr)
        comm->failed = say(result, "fake: sizes differ");
    }
    clique.groups.erase(found);
    ++clique.moved;
  }
}

static bool is_waiting(const FakeComm& comm) {
  const Clique& clique = *comm.clique;
  return static_cast<int>(clique.ranks.size()) < clique.size || comm.launched > clique.moved ||
         (comm.finalized && world().settings.hang_finalize != 0);
}

static FakeComm* comm_of(meron::nccl::NcclComm* comm) {
  return reinterpret_cast<FakeComm*>(comm);
}

static void forget(FakeComm* comm) {
  --world().alive;
  comm->clique->ranks[comm->rank] = nullptr;  // it has come, and is gone
  delete comm;
}

static Result note(meron::nccl::NcclComm* handle, const Operation& operation, int type) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != meron::nccl::kSuccess) return result;
  if (group_depth == 0 || type != meron::nccl::kUint8 || operation.bytes == 0) {
    return say(meron::nccl::kInvalidUsage, "fake: only groups, of bytes");
  }
  group_comm = comm;
  group_operations.push_back(operation);
  return meron::nccl::kSuccess;
}

// ---- For tests ----------------------------------------------------------------------------------

FAKE_API void fake_nccl_set(const char* key, int value) {
  const std::lock_guard lock(world().mutex);
  Settings& settings = world().settings;
  const std::string name = key;
  if (name == "reset") settings = Settings();
  if (name == "version") settings.version = value;
  if (name == "in_progress") settings.in_progress = value;
  if (name == "fail_open") settings.fail_open = value;
  if (name == "fail_opening") settings.fail_opening = value;
  if (name == "fail_launch") settings.fail_launch = value;
  if (name == "fail_later") settings.fail_later = value;
  if (name == "hang_finalize") settings.hang_finalize = value;
  if (name == "no_register") settings.no_register = value;
  if (name == "no_windows") settings.no_windows = value;
  if (name == "no_memory") settings.no_memory = value;
}

FAKE_API int fake_nccl_alive() {
  const std::lock_guard lock(world().mutex);
  return world().alive;
}

FAKE_API int fake_nccl_registered() {
  const std::lock_guard lock(world().mutex);
  return world().registered;
}

// How many windows are open, in memory of ncclMemAlloc; and memory that is not given back.
FAKE_API int fake_nccl_windows() {
  const std::lock_guard lock(world().mutex);
  return world().windows;
}

FAKE_API int fake_nccl_allocated() {
  const std::lock_guard lock(world().mutex);
  return world().allocated;
}

FAKE_API int fake_nccl_policy() {
  const std::lock_guard lock(world().mutex);
  return world().policy;
}

// ---- NCCL's functions ---------------------------------------------------------------------------

FAKE_API Result ncclGetVersion(int* version) {
  const std::lock_guard lock(world().mutex);
  *version = world().settings.version;
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(world().mutex);
  *id = {};
  std::strcpy(id->internal, ("fake " + std::to_string(++world().named)).c_str());
  id->internal[127] = 'x';  // all of it has to arrive
  return meron::nccl::kSuccess;
}

FAKE_API const char* ncclGetErrorString(Result result) {
  switch (result) {
    case meron::nccl::kSystemError:
      return "unhandled system error";
    case meron::nccl::kInvalidUsage:
      return "invalid usage";
    case meron::nccl::kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "some error";
  }
}

FAKE_API const char* ncclGetLastError(meron::nccl::NcclComm* /*comm*/) {
  static thread_local std::string kept;
  const std::lock_guard lock(world().mutex);
  kept = world().last_error;
  return kept.c_str();
}

FAKE_API Result ncclCommInitRankConfig(meron::nccl::NcclComm** out, int size, UniqueId id, int rank,
                                       Config* config) {
  const std::lock_guard lock(world().mutex);
  World& all = world();
  *out = nullptr;
  // What came after a version is read only where the caller knows of it.
  const bool newer = config->version >= 22800 && FAKE_VERSION >= 22800;
  if (config->size < (newer ? sizeof(Config) : offsetof(Config, traffic_class)) ||
      config->magic != 0xcafebeef || config->version < 21800 || config->blocking != 0 ||
      config->max_ctas != meron::nccl::kUndefined || config->net_name != nullptr ||
      config->split_share != meron::nccl::kUndefined) {
    return say(meron::nccl::kInvalidArgument, "fake: the configuration is not what it should be");
  }
  all.policy = newer ? config->cta_policy : meron::nccl::kUndefined;
  if (all.settings.fail_open != 0) {
    return say(as_result(all.settings.fail_open), "Cuda failure 'no CUDA-capable device'");
  }
  if (id.internal[127] != 'x') return say(meron::nccl::kInvalidArgument, "fake: no such id");
  Clique& clique = all.cliques[id.internal];
  clique.size = size;
  auto* const comm = new FakeComm{&clique, rank, all.settings.in_progress};
  comm->failed = as_result(all.settings.fail_opening);
  if (comm->failed != meron::nccl::kSuccess) {
    all.last_error = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000";
  }
  clique.ranks[rank] = comm;
  ++all.alive;
  *out = reinterpret_cast<meron::nccl::NcclComm*>(comm);
  return meron::nccl::kInProgress;
}

FAKE_API Result ncclCommGetAsyncError(meron::nccl::NcclComm* handle, Result* out) {
  const std::lock_guard lock(world().mutex);
  FakeComm& comm = *comm_of(handle);
  if (world().settings.fail_later != 0) {
    comm.failed = say(as_result(world().settings.fail_later), "fake: the socket was closed");
  }
  *out = meron::nccl::kInProgress;
  if (comm.polls_left > 1) {
    --comm.polls_left;
    return meron::nccl::kSuccess;
  }
  if (comm.failed == meron::nccl::kSuccess && is_waiting(comm)) return meron::nccl::kSuccess;
  comm.polls_left = 0;
  *out = comm.failed;
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclCommFinalize(meron::nccl::NcclComm* handle) {
  const std::lock_guard lock(world().mutex);
  FakeComm& comm = *comm_of(handle);
  if (const Result result = check_idle(comm); result != meron::nccl::kSuccess) return result;
  comm.finalized = true;
  comm.polls_left = world().settings.in_progress;
  return meron::nccl::kInProgress;
}

FAKE_API Result ncclCommDestroy(meron::nccl::NcclComm* handle) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != meron::nccl::kSuccess) return result;
  if (!comm->finalized) return say(meron::nccl::kInvalidUsage, "fake: it was not finalized");
  forget(comm);
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclCommAbort(meron::nccl::NcclComm* handle) {
  const std::lock_guard lock(world().mutex);
  forget(comm_of(handle));
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclAllGather(const void* from, void* to, size_t count, int type,
                              meron::nccl::NcclComm* comm, void* /*stream*/) {
  return note(comm, {Operation::gather, from, to, count, -1}, type);
}

FAKE_API Result ncclSend(const void* from, size_t count, int type, int peer,
                         meron::nccl::NcclComm* comm, void* /*stream*/) {
  return note(comm, {Operation::send, from, nullptr, count, peer}, type);
}

FAKE_API Result ncclRecv(void* to, size_t count, int type, int peer, meron::nccl::NcclComm* comm,
                         void* /*stream*/) {
  return note(comm, {Operation::receive, nullptr, to, count, peer}, type);
}

FAKE_API Result ncclGroupStart() {
  ++group_depth;
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclGroupEnd() {
  const std::lock_guard lock(world().mutex);
  if (group_depth != 1) return say(meron::nccl::kInvalidUsage, "fake: groups do not nest here");
  group_depth = 0;
  FakeComm* const comm = std::exchange(group_comm, nullptr);
  const Group operations = std::exchange(group_operations, {});
  if (comm == nullptr) return meron::nccl::kSuccess;
  if (world().settings.fail_launch != 0) {
    return say(as_result(world().settings.fail_launch), "fake: the launch failed");
  }
  comm->clique->groups[++comm->launched][comm->rank] = operations;
  comm->polls_left = world().settings.in_progress;
  advance(*comm->clique);
  return meron::nccl::kInProgress;
}

#ifndef FAKE_WITHOUT_REGISTER
FAKE_API Result ncclCommRegister(const meron::nccl::NcclComm* /*comm*/, void* data,
                                 size_t /*bytes*/, void** handle) {
  const std::lock_guard lock(world().mutex);
  *handle = nullptr;
  if (world().settings.no_register != 0) return meron::nccl::kSuccess;
  ++world().registered;
  *handle = data;
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclCommDeregister(const meron::nccl::NcclComm* /*comm*/, void* /*handle*/) {
  const std::lock_guard lock(world().mutex);
  --world().registered;
  return meron::nccl::kSuccess;
}
#endif

#ifndef FAKE_WITHOUT_WINDOWS
FAKE_API Result ncclMemAlloc(void** data, size_t bytes) {
  const std::lock_guard lock(world().mutex);
  if (world().settings.no_memory != 0) {
    return say(meron::nccl::kUnhandledCudaError, "Cuda failure 'out of memory'");
  }
  *data = std::malloc(bytes);
  ++world().allocated;
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclMemFree(void* data) {
  const std::lock_guard lock(world().mutex);
  std::free(data);
  --world().allocated;
  return meron::nccl::kSuccess;
}

FAKE_API Result ncclCommWindowRegister(meron::nccl::NcclComm* handle, void* data, size_t /*bytes*/,
                                       meron::nccl::NcclWindow** window, int flags) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != meron::nccl::kSuccess) return result;
  if (flags != meron::nccl::kSymmetricWindow) return meron::nccl::kInvalidArgument;
  comm->polls_left = world().settings.in_progress;
  if (world().settings.no_windows != 0) return meron::nccl::kInProgress;
  ++world().windows;
  *window = reinterpret_cast<meron::nccl::NcclWindow*>(data);
  return meron::nccl::kInProgress;
}

FAKE_API Result ncclCommWindowDeregister(meron::nccl::NcclComm* handle,
                                         meron::nccl::NcclWindow* /*window*/) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != meron::nccl::kSuccess) return result;
  --world().windows;
  comm->polls_left = world().settings.in_progress;
  return meron::nccl::kInProgress;
}
#endif
