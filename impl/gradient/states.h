// SPDX-License-Identifier: Apache-2.0
// The life of a unit's gradient on one rank, as a literal table that is checked at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace meron {

// Micro-batches are written to the "bucket". The "sum" is the f32 result of the reduction (a range
// of the bucket if the plan keeps full f32 gradients).
//   empty      there is no gradient; a sharded sum may be declared complete and is zero (ready)
//   filling    the trainer writes into the bucket; peers do not read it
//   reducing   peers read the bucket in place; it must not change
//   partial    the bucket or the sum has a micro-batch, and more follow. A sharded sum may be
//              declared complete (ready). The gradient may be discarded (empty)
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
