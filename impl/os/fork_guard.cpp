// SPDX-License-Identifier: Apache-2.0
#include "os/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

namespace meron {
namespace {

// Null where the kernel cannot. Never unmapped: calls may come during exit.
const std::atomic<int>* make_mark() {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (madvise(memory, page, MADV_WIPEONFORK) != 0) {
    munmap(memory, page);
    return nullptr;
  }
  auto* const mark = static_cast<std::atomic<int>*>(memory);
  mark->store(1);
  return mark;
}

}  // namespace

std::atomic<const std::atomic<int>*> fork_mark{nullptr};

bool is_forked_child_slow() {
  static const pid_t owner = getpid();
  static const std::atomic<int>* const mark = make_mark();
  if (mark == nullptr) return getpid() != owner;
  fork_mark.store(mark, std::memory_order_release);
  return mark->load(std::memory_order_relaxed) == 0;
}

}  // namespace meron
