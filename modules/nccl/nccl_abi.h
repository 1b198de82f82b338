// SPDX-License-Identifier: Apache-2.0
// What the module uses of NCCL's ABI, in declarations of its own: it is built where no nccl.h is,
// and works with every copy from 2.18 on that a process brings.
//
// Written after nccl.h of NVIDIA's NCCL (https://github.com/NVIDIA/nccl, src/nccl.h.in),
// versions 2.18 to 2.32, in which these are the same. tests/unit/nccl/header_test.cpp compares them
// with an nccl.h if there is one.
#pragma once

#include <climits>
#include <cstddef>

namespace meron::nccl {

struct NcclComm;  // ncclComm; ncclComm_t is a pointer to it

struct UniqueId {  // ncclUniqueId
  char internal[128];
};

enum Result : int {  // ncclResult_t
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,  // newer versions only
};

constexpr int kUint8 = 1;  // ncclUint8 of ncclDataType_t

constexpr int version_code(int major, int minor, int patch) {  // NCCL_VERSION, from 2.9 on
  return major * 10000 + minor * 100 + patch;
}
constexpr int kOldestVersion = version_code(2, 18, 0);

// NVIDIA's resiliency extension excludes these: an abort may hang or crash.
constexpr bool aborts_unsafely(int version) {
  return version >= version_code(2, 28, 3) && version <= version_code(2, 28, 8);
}

constexpr int kUndefined = INT_MIN;  // NCCL_CONFIG_UNDEF_INT

// The oldest in which copy engines gather, and its policy for that (NCCL_CTA_POLICY_ZERO).
constexpr int kCopyEngineVersion = version_code(2, 28, 0);
constexpr int kCopyEnginePolicy = 2;
constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC

struct NcclWindow;  // ncclWindow_vidmem; ncclWindow_t is a pointer to it

// ncclConfig_t. The library reads `size` bytes of it, and takes its own values for all that came
// after `version`: it is shown what version 2.18 has, or, for a policy, 2.28.
struct Config {
  size_t size = 0;
  unsigned int magic = 0xcafebeef;
  unsigned int version = kOldestVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  // From here on newer than 2.18.
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_peer = kUndefined;
  int nvlink_centric = kUndefined;

  Config() : size(offsetof(Config, traffic_class)) {}
  void set_policy(int policy) {
    size = sizeof(Config);
    version = kCopyEngineVersion;
    cta_policy = policy;
  }
};

// The functions, by their names without the leading "nccl". A stream is a cudaStream_t: a pointer.
struct Functions {
  Result (*GetVersion)(int* version);
  Result (*GetUniqueId)(UniqueId* id);
  Result (*CommInitRankConfig)(NcclComm** comm, int size, UniqueId id, int rank, Config* config);
  Result (*CommFinalize)(NcclComm* comm);
  Result (*CommDestroy)(NcclComm* comm);
  Result (*CommAbort)(NcclComm* comm);
  Result (*CommGetAsyncError)(NcclComm* comm, Result* error);
  const char* (*GetErrorString)(Result result);
  const char* (*GetLastError)(NcclComm* comm);
  Result (*AllGather)(const void* from, void* to, size_t count, int type, NcclComm* comm,
                      void* stream);
  Result (*Send)(const void* from, size_t count, int type, int peer, NcclComm* comm, void* stream);
  Result (*Recv)(void* to, size_t count, int type, int peer, NcclComm* comm, void* stream);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  // From 2.19 on; null before.
  Result (*CommRegister)(const NcclComm* comm, void* data, size_t bytes, void** handle);
  Result (*CommDeregister)(const NcclComm* comm, void* handle);
  // From kCopyEngineVersion on; null before.
  Result (*MemAlloc)(void** data, size_t bytes);
  Result (*MemFree)(void* data);
  Result (*CommWindowRegister)(NcclComm* comm, void* data, size_t bytes, NcclWindow** window,
                               int flags);
  Result (*CommWindowDeregister)(NcclComm* comm, NcclWindow* window);
};

}  // namespace meron::nccl
