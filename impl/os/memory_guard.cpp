// SPDX-License-Identifier: Apache-2.0
#include "os/memory_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/human_bytes.h"
#include "os/host.h"
#include "os/system_error.h"

namespace meron {
namespace {

// Left to everybody else: heap, stacks, page tables, other processes' growth.
constexpr uint64_t kHeadroom = 16ull << 20;
// One check of the host covers small requests up to this sum, which the headroom can bear.
constexpr uint64_t kCredit = 8ull << 20;
constexpr uint64_t kSmall = 1ull << 20;

std::atomic<uint64_t> credit{0};

bool take_credit(uint64_t bytes) {
  uint64_t have = credit.load(std::memory_order_relaxed);
  while (have >= bytes) {
    if (credit.compare_exchange_weak(have, have - bytes, std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace

Status require_memory(uint64_t bytes) {
  if (bytes <= kSmall && take_credit(bytes)) return Ok{};
  const HostMemory memory = host_memory();
  const uint64_t in_cgroup = memory.cgroup_available();
  // Without /proc/meminfo the host's figure is unknown, which is no reason to refuse.
  const uint64_t on_host = memory.total == 0 ? kNoLimit : memory.available;
  const uint64_t free = std::min(in_cgroup, on_host);
  const uint64_t margin = kHeadroom + bytes / 512;  // a page takes eight bytes of page table
  if (free >= margin && free - margin >= bytes) {
    if (bytes <= kSmall) credit.store(kCredit, std::memory_order_relaxed);
    return Ok{};
  }
  if (in_cgroup < on_host) {
    return Error(MERON_E_NO_MEMORY,
                 fmt::format("{} of memory are needed beside {} that must stay free for everything "
                             "else, and the memory cgroup {} has {} left of its limit of {}",
                             human_bytes(bytes), human_bytes(margin), memory.cgroup,
                             human_bytes(in_cgroup), human_bytes(memory.cgroup_limit)),
                 "raise the memory limit of the container or service, or shard more of the state");
  }
  return Error(
      MERON_E_NO_MEMORY,
      fmt::format("{} of memory are needed beside {} that must stay free for everything else, and "
                  "the host has {} free of {}",
                  human_bytes(bytes), human_bytes(margin), human_bytes(on_host),
                  human_bytes(memory.total)),
      "end other programs, run on a larger host, or shard more of the state");
}

Error refused_memory(uint64_t bytes, int error) {
  // EFAULT: a touch of the page would have been a SIGBUS, because no page could be had.
  if (error != ENOMEM && error != ENOSPC && error != EFAULT) {
    return memory_error("cannot give memory to a mapping", error);
  }
  const HostMemory memory = host_memory();
  return Error(MERON_E_NO_MEMORY,
               fmt::format("the host refused {} of memory ({}); it has {} available of {}",
                           human_bytes(bytes), errno_text(error), human_bytes(memory.available),
                           human_bytes(memory.total)),
               "end other programs, run on a larger host, or shard more of the state");
}

}  // namespace meron
