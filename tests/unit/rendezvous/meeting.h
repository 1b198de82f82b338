// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "rendezvous/join.h"

namespace meron {

inline MeetingOptions meeting(int rank, int world_size, int64_t timeout_ms = 10'000) {
  MeetingOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.window_reserve = 64 << 20;
  options.arena.reserve = 64 << 20;
  options.deadline = Deadline::after_ms(timeout_ms);
  return options;
}

}  // namespace meron
