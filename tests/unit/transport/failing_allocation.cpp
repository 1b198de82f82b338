// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/transport/failing_allocation.h"

#include <cstddef>
#include <cstdlib>
#include <utility>

namespace {

constexpr int64_t kNone = -1;
thread_local int64_t left = kNone;  // allocations before the one that fails
thread_local bool failed_here = false;

}  // namespace

void* operator new(std::size_t bytes) {
  if (left != kNone && left-- == 0) {
    failed_here = true;
    throw std::bad_alloc();
  }
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace meron {

FailingAllocation::FailingAllocation(int64_t number) {
  left = number;
  failed_here = false;
}
FailingAllocation::~FailingAllocation() {
  left = kNone;
}
bool FailingAllocation::failed() {
  return failed_here;
}

OwnMemory::OwnMemory() : left_(std::exchange(left, kNone)) {}
OwnMemory::~OwnMemory() {
  left = left_;
}

}  // namespace meron
