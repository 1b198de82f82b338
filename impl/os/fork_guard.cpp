// SPDX-License-Identifier: Apache-2.0
#include "os/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace meron {
namespace {

struct Guard {
  // 1 in the process that made it; the kernel turns it into 0 in a child. Null: not supported.
  std::atomic<int>* mark = nullptr;
  pid_t owner = getpid();

  Guard() {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    if (madvise(memory, page, MADV_WIPEONFORK) != 0) {
      munmap(memory, page);
      return;
    }
    mark = static_cast<std::atomic<int>*>(memory);
    mark->store(1);
  }
};

}  // namespace

bool is_forked_child() {
  static const Guard* guard = new Guard;  // never destroyed: calls may come during exit
  if (guard->mark != nullptr) return guard->mark->load(std::memory_order_relaxed) == 0;
  return getpid() != guard->owner;
}

}  // namespace meron
