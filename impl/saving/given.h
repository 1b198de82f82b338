// SPDX-License-Identifier: Apache-2.0
// Tensors of the caller's own that a save takes in: buffers, states of an optimizer that is not the
// engine's, anything else. Each rank gives parts of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "saving/exchange.h"
#include "saving/names.h"
#include "state/unit_state.h"

namespace meron {

// Elements [begin, begin + count) of a tensor, row-major.
struct GivenTensor {
  std::string name;
  std::string kind;   // as Manifest::Tensor has it
  std::string dtype;  // as safetensors names it
  std::vector<uint64_t> shape;
  uint64_t begin = 0, count = 0;
  const std::byte* data = nullptr;  // null for parts of other ranks

  bool whole() const;
  uint64_t bytes() const;
  bool operator==(const GivenTensor&) const = default;
};

// What one rank may give, whatever the others do: names, kinds, sizes. `rank`: that gives it.
// MERON_E_ARGUMENT names the tensor.
Status check_given(std::span<const GivenTensor> given, int rank);

// The kinds that a save of values alone keeps.
bool is_kept_by_values_only(const GivenTensor& tensor);

// The parts of all ranks, by rank, the same on all of them: without data, but for `own`.
// MERON_E_ARGUMENT on all ranks if they do not fit each other and the units' own states: another
// dtype or shape, gaps, overlaps.
Result<std::vector<std::vector<GivenTensor>>> share_given(Exchange& exchange,
                                                          std::span<const UnitState> units,
                                                          const SavedNames& names,
                                                          std::vector<GivenTensor> own);

}  // namespace meron
