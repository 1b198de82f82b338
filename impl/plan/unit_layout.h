// SPDX-License-Identifier: Apache-2.0
// The layout of a unit's tensors in its flats. The engine allocates and the plan predicts by it;
// base/layout.h has the arithmetic that both build on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/result.h"

namespace meron {

inline constexpr size_t kMaxDims = 16;
inline constexpr size_t kMaxNameBytes = 512;
// Of a tensor and of a flat. Far beyond any memory, and small enough that no sum or product of the
// layout arithmetic overflows.
inline constexpr uint64_t kMaxElements = uint64_t{1} << 48;

struct TensorDesc {
  std::string name;
  std::vector<uint64_t> shape;  // no dimension: one element; a dimension of 0: none
  DType dtype = DType::f32;
  bool trainable = true;

  bool operator==(const TensorDesc&) const = default;
};

// A run of tensors of one dtype that are all trainable or all frozen.
struct FlatDesc {
  DType dtype = DType::f32;
  uint64_t elements = 0;  // with the padding behind each tensor
  bool trainable = true;

  bool operator==(const FlatDesc&) const = default;
};

struct TensorPlace {
  uint32_t flat = 0;      // index in UnitLayout::flats
  uint64_t offset = 0;    // elements from the flat's begin, a multiple of kTensorAlign
  uint64_t elements = 0;  // without padding

  bool operator==(const TensorPlace&) const = default;
};

struct UnitLayout {
  std::vector<FlatDesc> flats;       // one per (dtype, trainable), in order of first appearance
  std::vector<TensorPlace> tensors;  // one per tensor, in the caller's order

  bool operator==(const UnitLayout&) const = default;
};

// The number of elements of a shape: at most kMaxDims dimensions, at most kMaxElements elements.
// Dimensions beside a 0 count too, so that the strides of an empty tensor are sound as well.
Result<uint64_t> element_count(std::span<const uint64_t> shape);

// A name of a tensor or unit: 1 to `max_bytes` bytes of valid UTF-8 without control characters.
Status check_name(std::string_view name, size_t max_bytes = kMaxNameBytes);

// Lays tensors one after the other in the order given. Names are checked and must differ. An empty
// tensor takes no room, its offset is that of the next one; a unit without tensors has no flats.
Result<UnitLayout> layout_unit(std::span<const TensorDesc> tensors);

}  // namespace meron
