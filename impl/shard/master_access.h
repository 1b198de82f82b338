// SPDX-License-Identifier: Apache-2.0
// The f32 values that an optimizer keeps beside those of 16 bits, wherever they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"

namespace meron {

class MasterAccess {
 public:
  virtual ~MasterAccess() = default;
  // Takes over `count` values from the flat's element `first` on, which are owned here. May read
  // and write a drive, and fail by it.
  virtual Status put(uint64_t first, const std::byte* values, DType dtype, uint64_t count) = 0;
  // The same values, to `out`.
  virtual Status get(uint64_t first, uint64_t count, float* out) = 0;
  // True if they were moved off, and cannot be written until they are back.
  virtual bool parked() const = 0;
};

}  // namespace meron
