// SPDX-License-Identifier: Apache-2.0
#include "plan/unit_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "plan/text.h"

namespace meron {
namespace {

Error too_large(std::string_view what) {
  return Error(MERON_E_ARGUMENT, fmt::format("{} has more than {} elements", what, kMaxElements),
               "check the shape: no memory holds that many");
}

}  // namespace

Result<uint64_t> element_count(std::span<const uint64_t> shape) {
  if (shape.size() > kMaxDims) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the shape has {} dimensions, more than the limit of {}", shape.size(),
                             kMaxDims),
                 "join dimensions: the engine sees the tensor as a row of elements anyway");
  }
  uint64_t product = 1;
  bool empty = false;
  for (const uint64_t size : shape) {
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, size, &product) || product > kMaxElements) {
      return too_large("the shape");
    }
  }
  return empty ? 0 : product;
}

Status check_name(std::string_view name, size_t max_bytes) {
  if (name.empty()) return Error(MERON_E_ARGUMENT, "the name is empty", "give it a name");
  if (name.size() > max_bytes) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the name has {} bytes, more than the limit of {}", name.size(),
                             max_bytes),
                 "use a shorter name")
        .on(in_quotes(name));
  }
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (control || !valid_utf8(name)) {
    return Error(MERON_E_ARGUMENT,
                 control ? "the name has a control character" : "the name is not valid UTF-8",
                 "use a name of printable UTF-8 text")
        .on(in_quotes(name));
  }
  return Ok{};
}

Result<UnitLayout> layout_unit(std::span<const TensorDesc> tensors) {
  UnitLayout layout;
  layout.tensors.reserve(tensors.size());
  std::unordered_set<std::string_view> names;
  for (const TensorDesc& tensor : tensors) {
    MERON_TRY(check_name(tensor.name));
    if (!names.insert(tensor.name).second) {
      return Error(MERON_E_DUPLICATE, "the unit has two tensors of this name",
                   "give each tensor a name of its own")
          .on(tensor.name);
    }
    Result<uint64_t> elements = element_count(tensor.shape);
    if (!elements) return std::move(elements).error().on(tensor.name);

    auto flat = std::find_if(layout.flats.begin(), layout.flats.end(), [&](const FlatDesc& known) {
      return known.dtype == tensor.dtype && known.trainable == tensor.trainable;
    });
    if (flat == layout.flats.end()) {
      flat = layout.flats.insert(flat, {tensor.dtype, 0, tensor.trainable});
    }
    layout.tensors.push_back(
        {static_cast<uint32_t>(flat - layout.flats.begin()), flat->elements, *elements});
    // Both are at most kMaxElements, itself a multiple of kTensorAlign: the sum cannot overflow.
    flat->elements += round_up(*elements, kTensorAlign);
    if (flat->elements > kMaxElements) return too_large("the unit").on(tensor.name);
  }
  return layout;
}

}  // namespace meron
