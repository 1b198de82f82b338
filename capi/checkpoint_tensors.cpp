// SPDX-License-Identifier: Apache-2.0
#include "capi/checkpoint_tensors.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace meron::capi {

Result<std::vector<GivenTensor>> read_tensors(const meron_checkpoint_tensor* tensors,
                                              uint64_t count, int rank) {
  std::vector<GivenTensor> out;
  if (count > 0) MERON_TRY(need(tensors, "options.tensors"));
  const auto* next = reinterpret_cast<const std::byte*>(tensors);
  for (uint64_t i = 0; i < count; ++i) {
    // A caller of another version has an array of structs of another size.
    const auto* const from = reinterpret_cast<const meron_checkpoint_tensor*>(next);
    const std::string place = fmt::format("options.tensors[{}]", i);
    const meron_checkpoint_tensor defaults = MERON_CHECKPOINT_TENSOR_INIT;
    uint32_t size = 0;
    std::memcpy(&size, from, sizeof(size));
    MERON_ASSIGN(const meron_checkpoint_tensor given, read_options(from, defaults, place.c_str()));
    next += size;
    MERON_TRY(need(given.name, (place + ".name").c_str()));
    MERON_TRY(need(given.dtype, (place + ".dtype").c_str()));
    if (given.dims > MERON_MAX_DIMS) {
      return Error(MERON_E_ARGUMENT, fmt::format("{}.dims is {}", place, given.dims),
                   fmt::format("give at most {}", MERON_MAX_DIMS));
    }
    if (given.dims > 0) MERON_TRY(need(given.shape, (place + ".shape").c_str()));
    if (given.count > 0) MERON_TRY(need(given.data, (place + ".data").c_str()));
    GivenTensor tensor;
    tensor.name = given.name;
    tensor.kind = given.kind == nullptr ? "extra" : given.kind;
    tensor.dtype = given.dtype;
    tensor.shape.assign(given.shape, given.shape + given.dims);
    tensor.begin = given.begin;
    tensor.count = given.count;
    tensor.data = static_cast<const std::byte*>(given.data);
    out.push_back(std::move(tensor));
  }
  MERON_TRY(check_given(out, rank));
  return out;
}

}  // namespace meron::capi
