// SPDX-License-Identifier: Apache-2.0
// Where the gradients of a step are not finite, for its error. Each rank passes a place on beside
// its sum of squares. It knows the place from encoding; or, if that sum is not finite, it searches
// its own shard.
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
  enum class Kind : uint32_t { sum, encoded, decoded } kind = Kind::sum;
  uint32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<NonFinitePlace>);

// The first place that this rank knows of the units, whose squares are known.
NonFinitePlace find_nonfinite(std::span<const std::shared_ptr<Unit>> units);

// "'h.3.w' of unit 'h.3', element 7, in the shard of rank 2".
std::string text_of(const NonFinitePlace& place, std::span<const std::shared_ptr<Unit>> units,
                    int rank);

}  // namespace meron
