// SPDX-License-Identifier: Apache-2.0
// malloc and its relatives of a test program, of which one call fails. A program that links
// failing_allocator.cpp has them instead of the C library's; sanitizers have their own, too.
#pragma once

#include <atomic>
#include <cstdint>

namespace meron::test {

inline std::atomic<bool> armed{false};    // true: allocations are counted, and one may fail
inline std::atomic<int64_t> counted{0};   // allocations while it was armed
inline std::atomic<int64_t> fails_at{0};  // the number of the one that fails, from 1; 0: none
inline thread_local bool spared = false;  // true: not counted in this thread

}  // namespace meron::test
