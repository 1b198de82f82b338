// SPDX-License-Identifier: Apache-2.0
// Ends the process at a chosen place, as a kill at that moment would, for tests of what is left
// behind. Only builds with the CMake option MERON_FAULT_POINTS do it.
//
// "rename:3" is the third passing of the points named `rename`, "*:3" the third of all. The choice
// is that of the environment's MERON_KILL_POINT until set_kill_point.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "io/fault_plan.h"

namespace meron {

// Replaces the choice ("": none) and counts from 1 again. MERON_E_PARSE for what is unclear,
// MERON_E_UNSUPPORTED without fault points. An unclear environment chooses nothing.
Status set_kill_point(std::string_view choice);

// How many points were passed since the process began, or since set_kill_point.
uint64_t kill_points_passed();

void pass_kill_point(std::string_view name);
// A name in use is that of the system call that follows: open, write, fsync, rename, ...
inline void kill_point([[maybe_unused]] std::string_view name) {
  if constexpr (have_fault_points()) pass_kill_point(name);
}

}  // namespace meron
