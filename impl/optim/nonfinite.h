// SPDX-License-Identifier: Apache-2.0
// Finds the first number of a step that is not finite, for its error: a gradient, or a result of
// the step. Each rank shares the position beside its sum of squares. It knows the position from
// encoding; otherwise, if a number is not finite, it searches its own shard.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "unit/unit.h"

namespace meron {

struct NonFinitePlace {
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t unit = kNone;   // of the optimizer's; none: all of the rank's shard is finite
  uint32_t param = kNone;  // of the unit's; none where the gradient is not on the host
  uint64_t element = 0;    // of the param
  // Where it was found. `decoded`: of a block that a codec made NaN as a whole, as its first.
  // `state`, `value`: the step would make these infinite. `held`: a value that an earlier step made
  // infinite.
  enum class Kind : uint32_t { sum, encoded, decoded, state, value, held } kind = Kind::sum;
  // Beside the norm: this rank's numbers are so large that the step could make some of them
  // infinite, so that all ranks look before they take it.
  uint32_t risky = 0;
};
static_assert(std::is_trivially_copyable_v<NonFinitePlace>);

// The first place that this rank knows of the units, whose squares are known.
NonFinitePlace find_nonfinite(std::span<const std::shared_ptr<Unit>> units);

// The place of an element of a flat. No param: padding, which is always zero.
NonFinitePlace place_in(const Unit& unit, size_t flat, uint64_t element);

// "'h.3.w' of unit 'h.3', element 7, in the shard of rank 2".
std::string text_of(const NonFinitePlace& place, const Unit& unit, int rank);
std::string text_of(const NonFinitePlace& place, std::span<const std::shared_ptr<Unit>> units,
                    int rank);

}  // namespace meron
