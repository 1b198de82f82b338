// SPDX-License-Identifier: Apache-2.0
// A library that looks like NCCL, for tests without a GPU: ranks are threads of a process, memory
// is the host's, and streams are ignored: the bytes of a group have arrived when the communicator
// is no longer in progress. It rejects the same calls as NCCL, a call on a communicator that is
// still in progress above all, and makes the errors that fake_nccl_set requests.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_world.h"

namespace meron::nccl::fake {

static thread_local int group_depth = 0;
static thread_local FakeComm* group_comm = nullptr;
static thread_local Group group_operations;
static thread_local std::vector<FakeComm*> group_aborts;

static FakeComm* comm_of(NcclComm* comm) {
  return reinterpret_cast<FakeComm*>(comm);
}

static Result note(NcclComm* handle, const Operation& operation, int type) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != kSuccess) return result;
  if (group_depth == 0 || type != kUint8 || operation.bytes == 0) {
    return say(kInvalidUsage, "fake: only groups, of bytes");
  }
  group_comm = comm;
  group_operations.push_back(operation);
  return kSuccess;
}

FAKE_API Result ncclGetVersion(int* version) {
  const std::lock_guard lock(world().mutex);
  *version = world().settings.version;
  return kSuccess;
}

FAKE_API Result ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(world().mutex);
  *id = {};
  std::strcpy(id->internal, ("fake " + std::to_string(++world().named)).c_str());
  id->internal[127] = 'x';  // all of it has to arrive
  return kSuccess;
}

FAKE_API const char* ncclGetErrorString(Result result) {
  switch (result) {
    case kSystemError:
      return "unhandled system error";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "some error";
  }
}

FAKE_API const char* ncclGetLastError(NcclComm* /*comm*/) {
  static thread_local std::string kept;
  const std::lock_guard lock(world().mutex);
  kept = world().last_error;
  return kept.c_str();
}

FAKE_API Result ncclCommInitRankConfig(NcclComm** out, int size, UniqueId id, int rank,
                                       Config* config) {
  const std::lock_guard lock(world().mutex);
  World& all = world();
  *out = nullptr;
  // Fields of later versions are read only if the caller's version has them.
  const bool newer = config->version >= 22800 && FAKE_VERSION >= 22800;
  if (config->size < (newer ? sizeof(Config) : offsetof(Config, traffic_class)) ||
      config->magic != 0xcafebeef || config->version < 21800 || config->blocking != 0 ||
      config->max_ctas != kUndefined || config->net_name != nullptr ||
      config->split_share != kUndefined) {
    return say(kInvalidArgument, "fake: the configuration is not what it should be");
  }
  all.policy = newer ? config->cta_policy : kUndefined;
  if (all.settings.fail_open != 0) {
    return say(as_result(all.settings.fail_open), "Cuda failure 'no CUDA-capable device'");
  }
  if (id.internal[127] != 'x') return say(kInvalidArgument, "fake: no such id");
  Clique& clique = all.cliques[id.internal];
  clique.size = size;
  auto* const comm = new FakeComm{&clique, rank, all.settings.in_progress};
  comm->failed = as_result(all.settings.fail_opening);
  if (comm->failed != kSuccess) {
    all.last_error = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000";
  }
  clique.ranks[rank] = comm;
  ++all.alive;
  *out = reinterpret_cast<NcclComm*>(comm);
  return kInProgress;
}

FAKE_API Result ncclCommGetAsyncError(NcclComm* handle, Result* out) {
  const std::lock_guard lock(world().mutex);
  FakeComm& comm = *comm_of(handle);
  if (world().settings.fail_later != 0) {
    comm.failed = say(as_result(world().settings.fail_later), "fake: the socket was closed");
  }
  *out = kInProgress;
  if (comm.polls_left > 1) {
    --comm.polls_left;
    return kSuccess;
  }
  if (comm.failed == kSuccess && is_waiting(comm)) return kSuccess;
  comm.polls_left = 0;
  *out = comm.failed;
  return kSuccess;
}

FAKE_API Result ncclCommFinalize(NcclComm* handle) {
  const std::lock_guard lock(world().mutex);
  FakeComm& comm = *comm_of(handle);
  if (const Result result = check_idle(comm); result != kSuccess) return result;
  comm.finalized = true;
  comm.polls_left = world().settings.in_progress;
  return kInProgress;
}

FAKE_API Result ncclCommDestroy(NcclComm* handle) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != kSuccess) return result;
  if (!comm->finalized) return say(kInvalidUsage, "fake: it was not finalized");
  forget(comm);
  return kSuccess;
}

static Result abort_all(const std::vector<FakeComm*>& aborted) {
  std::unique_lock lock(world().mutex);
  for (FakeComm* const comm : aborted) comm->aborting = true;
  while (abort_waits(aborted)) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  for (FakeComm* const comm : aborted) forget(comm);
  return kSuccess;
}

FAKE_API Result ncclCommAbort(NcclComm* handle) {
  if (group_depth == 0) return abort_all({comm_of(handle)});
  group_aborts.push_back(comm_of(handle));
  return kSuccess;
}

FAKE_API Result ncclAllGather(const void* from, void* to, size_t count, int type, NcclComm* comm,
                              void* /*stream*/) {
  return note(comm, {Operation::gather, from, to, count, -1}, type);
}

FAKE_API Result ncclSend(const void* from, size_t count, int type, int peer, NcclComm* comm,
                         void* /*stream*/) {
  return note(comm, {Operation::send, from, nullptr, count, peer}, type);
}

FAKE_API Result ncclRecv(void* to, size_t count, int type, int peer, NcclComm* comm,
                         void* /*stream*/) {
  return note(comm, {Operation::receive, nullptr, to, count, peer}, type);
}

FAKE_API Result ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}

FAKE_API Result ncclGroupEnd() {
  if (!group_aborts.empty()) {
    group_depth = 0;
    return abort_all(std::exchange(group_aborts, {}));
  }
  const std::lock_guard lock(world().mutex);
  if (group_depth != 1) return say(kInvalidUsage, "fake: groups do not nest here");
  group_depth = 0;
  FakeComm* const comm = std::exchange(group_comm, nullptr);
  const Group operations = std::exchange(group_operations, {});
  if (comm == nullptr) return kSuccess;
  if (world().settings.fail_launch != 0) {
    return say(as_result(world().settings.fail_launch), "fake: the launch failed");
  }
  comm->clique->groups[++comm->launched][comm->rank] = operations;
  comm->polls_left = world().settings.in_progress;
  advance(*comm->clique);
  return kInProgress;
}

#ifndef FAKE_WITHOUT_REGISTER
FAKE_API Result ncclCommRegister(const NcclComm* /*comm*/, void* data, size_t /*bytes*/,
                                 void** handle) {
  const std::lock_guard lock(world().mutex);
  *handle = nullptr;
  if (world().settings.no_register != 0) return kSuccess;
  ++world().registered;
  *handle = data;
  return kSuccess;
}

FAKE_API Result ncclCommDeregister(const NcclComm* /*comm*/, void* /*handle*/) {
  const std::lock_guard lock(world().mutex);
  --world().registered;
  return kSuccess;
}
#endif

#ifndef FAKE_WITHOUT_WINDOWS
FAKE_API Result ncclMemAlloc(void** data, size_t bytes) {
  const std::lock_guard lock(world().mutex);
  if (world().settings.no_memory != 0) {
    return say(kUnhandledCudaError, "Cuda failure 'out of memory'");
  }
  *data = std::malloc(bytes);
  ++world().allocated;
  return kSuccess;
}

FAKE_API Result ncclMemFree(void* data) {
  const std::lock_guard lock(world().mutex);
  std::free(data);
  --world().allocated;
  return kSuccess;
}

FAKE_API Result ncclCommWindowRegister(NcclComm* handle, void* data, size_t /*bytes*/,
                                       NcclWindow** window, int flags) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != kSuccess) return result;
  if (flags != kSymmetricWindow) return kInvalidArgument;
  comm->polls_left = world().settings.in_progress;
  if (world().settings.no_windows != 0) return kInProgress;
  ++world().windows;
  *window = reinterpret_cast<NcclWindow*>(data);
  return kInProgress;
}

FAKE_API Result ncclCommWindowDeregister(NcclComm* handle, NcclWindow* /*window*/) {
  const std::lock_guard lock(world().mutex);
  FakeComm* const comm = comm_of(handle);
  if (const Result result = check_idle(*comm); result != kSuccess) return result;
  --world().windows;
  comm->polls_left = world().settings.in_progress;
  return kInProgress;
}
#endif

}  // namespace meron::nccl::fake
