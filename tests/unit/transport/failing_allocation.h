// SPDX-License-Identifier: Apache-2.0
// Memory that runs out. Programs that include this link failing_allocation.cpp, whose operator new
// is theirs.
#pragma once

#include <cstdint>
#include <new>

namespace meron {

// While it lives, the `number`th allocation of this thread fails, counted from 0, and no other.
class FailingAllocation {
 public:
  explicit FailingAllocation(int64_t number);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  // True if an allocation has failed.
  static bool failed();
};

// While it lives, allocations succeed and do not count: those of the test itself.
class OwnMemory {
 public:
  OwnMemory();
  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

 private:
  int64_t left_;
};

// Calls `action`, and once more if memory ran out. Whether it did.
template <class Action>
bool retry_without_memory(const Action& action) {
  try {
    action();
    return false;
  } catch (const std::bad_alloc&) {
    action();
    return true;
  }
}

// Runs `test` once for each allocation within its FailingAllocation, and once without a failure.
template <class Test>
void for_each_allocation(const Test& test) {
  int64_t number = 0;
  do {
    test(number++);
  } while (FailingAllocation::failed());
}

}  // namespace meron
