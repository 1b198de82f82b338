// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word of shared memory, across threads and processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace meron {

enum class WakeReason {
  woken,        // by futex_wake, or spuriously: check the word again
  changed,      // the word did not hold `expected`
  timeout,      // timeout_ns passed
  interrupted,  // a signal handler ran
};

inline constexpr int kWakeAll = std::numeric_limits<int>::max();

// Sleeps while *word == expected, at most `timeout_ns` (the largest int64_t: without end). The
// word may be in a read-only mapping.
WakeReason futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns);

// Wakes up to `count` sleepers of any process that maps the word's page; returns how many. The
// word must be in a writable mapping.
int futex_wake(std::atomic<uint32_t>* word, int count);

}  // namespace meron
