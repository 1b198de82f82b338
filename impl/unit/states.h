// SPDX-License-Identifier: Apache-2.0
// The life of a unit's values on one rank, as a literal table that is checked at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace meron {

//   partitioned  this rank holds its shard (sharded: in the window; replicated: the private copy)
//   gathering    a gather is under way; it already holds a lease
//   available    leased; the whole flat of the present version may be read
//   updating     no rank holds the version any more; this rank writes its part
enum class ValueState : uint8_t { partitioned, gathering, available, updating };

inline constexpr std::array<std::string_view, 4> kValueStateNames = {"partitioned", "gathering",
                                                                     "available", "updating"};
constexpr bool allowed(ValueState from, ValueState to) {
  //                              to: partitioned gathering available updating
  constexpr bool table[4][4] = {/* partitioned */ {false, true, false, true},
                                /* gathering   */ {true, false, true, false},
                                /* available   */ {true, false, false, false},
                                /* updating    */ {true, false, false, false}};
  return table[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace meron
