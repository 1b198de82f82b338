// SPDX-License-Identifier: Apache-2.0
// The caller's tensors in a save: buffers, states of an optimizer that is not the engine's,
// anything else. Each rank passes slices of them, and the slices of all ranks cover each element
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "saving/exchange.h"

namespace meron {

// A slice of a tensor of the caller: elements [begin, begin + count), row-major.
struct GivenTensor {
  std::string name;
  std::string kind;  // "values", "master", "exp_avg", "exp_avg_sq", "state.KEY", "extra", "extra.R"
  std::string dtype;            // as safetensors names it
  std::vector<uint64_t> shape;  // of the full tensor
  uint64_t begin = 0, count = 0;
  const std::byte* data = nullptr;  // null for slices of other ranks

  uint64_t elements() const;
  bool complete() const { return begin == 0 && count == elements(); }
  uint64_t bytes() const;
  bool operator==(const GivenTensor&) const = default;
};

// True if a save with values_only includes the kind.
bool is_kept_by_values_only(const GivenTensor& tensor);

// Checks the slices of one rank alone: names, kinds, sizes. MERON_E_ARGUMENT names the tensor.
Status check_given(std::span<const GivenTensor> given, int rank);

// Checks that the slices of all ranks, by rank, make complete tensors: each has one dtype, one
// shape, and every element once. MERON_E_ARGUMENT names tensor, ranks and elements.
Status check_slices(std::span<const std::vector<GivenTensor>> given);

// Returns the slices of all ranks, by rank, on rank 0: without data, except for its own. The other
// ranks get only their own, so their memory does not grow with the world. Rank 0 runs
// check_slices() and then `check`. A failure on any rank, also an error in `own`, fails the call on
// every rank.
Result<std::vector<std::vector<GivenTensor>>> share_given(
    Exchange& exchange, Result<std::vector<GivenTensor>> own,
    const std::function<Status(std::span<const std::vector<GivenTensor>>)>& check);

}  // namespace meron
