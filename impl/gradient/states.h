// SPDX-License-Identifier: Apache-2.0
// The life of a unit's gradient on one rank, as a literal table that is checked at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace meron {

// "bucket" is where micro-batches are written, "sum" the f32 result of the reduction (the bucket's
// own range where the plan keeps whole f32 gradients).
//   empty      nothing is held that matters; as a sharded sum it counts as zero (ready)
//   filling    the trainer writes into the bucket; peers do not read it
//   reducing   peers read the bucket in place; it must not change
//   partial    a micro-batch is in (in the bucket, or in the sum), more follow. A sharded sum may
//              be declared complete (ready), and what was summed may be given up (empty)
//   ready      the sum is complete and waits for a step
enum class GradientState : uint8_t { empty, filling, reducing, partial, ready };

inline constexpr std::array<std::string_view, 5> kGradientStateNames = {
    "empty", "being filled", "being reduced", "partly accumulated", "reduced"};

constexpr bool allowed(GradientState from, GradientState to) {
  //                              to: empty  filling reducing partial ready
  constexpr bool table[5][5] = {/* empty    */ {false, true, false, false, true},
                                /* filling  */ {false, false, true, true, false},
                                /* reducing */ {false, false, false, true, true},
                                /* partial  */ {true, true, false, false, true},
                                /* ready    */ {true, false, false, false, false}};
  return table[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace meron
