// SPDX-License-Identifier: Apache-2.0
// The resources that this host offers to this process. No function fails: unknown values read as
// "unknown", 0, or no limit.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace meron {

inline constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

struct HostMemory {
  uint64_t total = 0;      // of the host
  uint64_t available = 0;  // what the host can give without swapping
  // The tightest memory cgroup (v1 or v2) among this process' own and its ancestors. Page cache,
  // which the kernel takes back when needed, does not count as used.
  uint64_t cgroup_limit = kNoLimit;
  uint64_t cgroup_used = 0;
  std::string cgroup;  // its directory; empty when none limits

  uint64_t cgroup_available() const {
    if (cgroup_limit == kNoLimit) return kNoLimit;
    return cgroup_limit > cgroup_used ? cgroup_limit - cgroup_used : 0;
  }
};
HostMemory host_memory();

struct ShmSpace {
  uint64_t total = 0;
  uint64_t available = 0;
};
ShmSpace shm_space();  // of /dev/shm, for information: Meron does not use it

struct IoUringSupport {
  bool available = false;
  std::string reason;  // why not
};
IoUringSupport io_uring_available();

struct CpuInfo {
  std::string brand;
  std::vector<std::string> features;  // the vector extensions among the CPU's flags

  std::string text() const;  // "brand: avx2 fma ..."
};
CpuInfo cpu_info();

uint64_t memlock_limit();      // bytes; kNoLimit when unlimited
std::string thp_shmem_mode();  // "never", "advise", "within_size", "always", ... or "unknown"
uint64_t page_size();
inline constexpr uint64_t kHugePage = 2ull << 20;

std::string host_name();  // MERON_HOST if it is set, else the kernel's name of the host
// Equal in processes that can share memory: of one boot, and of one network namespace, because
// their sockets have names in it. MERON_NODE overrides it.
std::string node_identity();

}  // namespace meron
