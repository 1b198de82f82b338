// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's threads on the CPU, to find what a device would do wrong rather than to be fast:
// blocks one after the other, a block's threads as fibers. At a meeting (a barrier, a shuffle)
// threads wait for each other; if not all arrive at a meeting, the launch ends with an error and
// does not hang. Between meetings a thread runs alone, in an order of threads that changes from
// launch to launch, so that a missing barrier becomes a wrong result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace meron::cuda::emulator {

struct Place {
  unsigned thread, block, blocks;
};

// Position of the running thread.
extern Place here;

enum class Meeting : uint32_t { none, shuffle, maximum };

// Waits until all lanes of the warp have arrived at the same meeting, and returns the value of lane
// (own lane) ^ `lanes`; for a maximum, the largest value.
uint64_t meet(Meeting kind, uint64_t value, unsigned lanes);

// Waits for the block's threads that have not ended.
void meet_block();

// Ends the launch: the running thread has done what a device would not.
[[noreturn]] void fail(const char* what);

// Maximal number of blocks of a launch: few, so that blocks continue with other tiles.
inline constexpr unsigned kResidentBlocks = 3;

// Runs `thread` as each thread of the blocks. Returns the error, or nothing.
std::string run(unsigned blocks, unsigned threads, const std::function<void()>& thread);

// The same with what went wrong printed.
bool succeeds(unsigned blocks, unsigned threads, const std::function<void()>& thread);

}  // namespace meron::cuda::emulator
