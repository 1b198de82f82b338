// SPDX-License-Identifier: Apache-2.0
// Copies between places of the host's memory, by all threads of a rank where it is worth while.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/held.h"
#include "kernels/cpu/copy.h"
#include "rank/rank.h"

namespace meron {

// Threads get whole pages. Copies of kInlineElements and more leave the lock meanwhile.
inline void parallel_copy(Rank& rank, std::byte* to, const std::byte* from, uint64_t bytes) {
  const Recess recess(bytes >= kInlineElements * sizeof(float));
  rank.threads.for_range(0, bytes, 4096, kInlineElements * sizeof(float),
                         [&](int, uint64_t begin, uint64_t end) {
                           kernels::copy(to + begin, from + begin, end - begin);
                         });
}

}  // namespace meron
