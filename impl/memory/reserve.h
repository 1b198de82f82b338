// SPDX-License-Identifier: Apache-2.0
// Private to memory/: how much address space to take.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/result.h"
#include "os/host.h"

namespace meron {

inline constexpr uint64_t kLeastReserve = 256ull << 20;

// Calls attempt(bytes), which returns a Result, with `wanted` bytes (0: the host's RAM), and while
// the host refuses that much with halves of it, down to kLeastReserve.
template <class Attempt>
auto with_reserve(uint64_t wanted, Attempt attempt) -> decltype(attempt(wanted)) {
  if (wanted == 0) wanted = std::max(host_memory().total, kLeastReserve);
  for (;;) {
    auto result = attempt(wanted);
    if (result.ok() || result.error().code() != MERON_E_NO_MEMORY || wanted <= kLeastReserve) {
      return result;
    }
    wanted = std::max(wanted / 2, kLeastReserve);
  }
}

}  // namespace meron
