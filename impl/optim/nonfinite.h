// SPDX-License-Identifier: Apache-2.0
// Where a step meets a number that is not finite, for its error: in the gradients, or in what the
// step would make of them. Each rank looks in its own shard, only if there is reason to, and passes
// the place on to all others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "unit/unit.h"

namespace meron {

struct NonFinitePlace {
  enum class What : uint32_t { gradient, state, value };

  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t unit = kNone;   // of the optimizer's; none: all of the rank's shard is finite
  uint32_t param = kNone;  // of the unit's; none where the gradient is not on the host
  uint64_t element = 0;    // of the param
  What what = What::gradient;
  // Beside the norm: this rank's numbers are so large that the step could make some of them
  // infinite, so that all ranks look before they take it.
  uint32_t risky = 0;
};
static_assert(std::is_trivially_copyable_v<NonFinitePlace>);

// The first place in this rank's shards of the units, whose squares are known.
NonFinitePlace find_nonfinite(std::span<const std::shared_ptr<Unit>> units);

// "'h.3.w' of unit 'h.3', element 7, in the shard of rank 2".
// `element` of a flat; no param: padding, which is always zero.
NonFinitePlace place_in(const Unit& unit, size_t flat, uint64_t element);

// Of a place in this unit.
std::string text_of(const NonFinitePlace& place, const Unit& unit, int rank);
std::string text_of(const NonFinitePlace& place, std::span<const std::shared_ptr<Unit>> units,
                    int rank);

}  // namespace meron
