// SPDX-License-Identifier: Apache-2.0
// Tensors of the caller's own that a save takes in: buffers, states of an optimizer that is not the
// engine's, anything else. Each rank gives parts of them, and the parts of all ranks together have
// each element once.
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

// Elements [begin, begin + count) of a tensor, row-major.
struct GivenTensor {
  std::string name;
  std::string kind;  // "values", "master", "exp_avg", "exp_avg_sq", "state.KEY", "extra", "extra.R"
  std::string dtype;            // as safetensors names it
  std::vector<uint64_t> shape;  // of the whole tensor
  uint64_t begin = 0, count = 0;
  const std::byte* data = nullptr;  // null for parts of other ranks

  uint64_t elements() const;
  bool whole() const { return begin == 0 && count == elements(); }
  uint64_t bytes() const;
  bool operator==(const GivenTensor&) const = default;
};

// The kinds that a save of values alone keeps.
bool is_kept_by_values_only(const GivenTensor& tensor);

// What one rank may give, whatever the others do: names, kinds, sizes. MERON_E_ARGUMENT names the
// tensor.
Status check_given(std::span<const GivenTensor> given, int rank);

// Whether the parts of all ranks, by rank, make whole tensors: each has one dtype, one shape, and
// every element once. MERON_E_ARGUMENT names tensor, ranks and elements.
Status check_parts(std::span<const std::vector<GivenTensor>> given);

// The parts of all ranks, by rank, on rank 0: without data, but for its own. The other ranks have
// their own alone, so their memory does not grow with the world. Rank 0 judges by check_parts() and
// then `check`. Any failure is every rank's, also where `own` is one.
Result<std::vector<std::vector<GivenTensor>>> share_given(
    Exchange& exchange, Result<std::vector<GivenTensor>> own,
    const std::function<Status(std::span<const std::vector<GivenTensor>>)>& check);

}  // namespace meron
