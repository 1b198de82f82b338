// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/failing_allocator.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>

#include <cstddef>

using meron::test::armed;
using meron::test::counted;
using meron::test::fails_at;
using meron::test::spared;

namespace {

bool fails() {
  if (!armed.load(std::memory_order_relaxed) || spared) return false;
  if (counted.fetch_add(1) + 1 != fails_at.load(std::memory_order_relaxed)) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  return fails() ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return fails() ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  return fails() ? nullptr : __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (fails()) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}

// Libraries that modules are linked with, such as CUDA's runtime, do not check their allocations
// while they are loaded.
__attribute__((visibility("default"))) void* dlopen(const char* path, int flags) {
  using Open = void* (*)(const char*, int);
  static const Open open = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  const bool before = armed.exchange(false);
  void* const library = open(path, flags);
  armed.store(before);
  return library;
}
}
