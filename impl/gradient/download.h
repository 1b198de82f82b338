// SPDX-License-Identifier: Apache-2.0
// Copies gradients from the device into a bucket of the host. The first gradient of an accumulation
// is copied directly if it has the bucket's dtype. Others are staged in host memory, then converted
// or added.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "gradient/memory.h"
#include "rank/staging.h"

namespace meron {

class Gradient;
class GradientOnHost;

class Download {
 public:
  // Copies those of `from` that are on the device. The gradient is `filling`. The copies begin
  // after the work queued on `stream` so far. The caller's gradients must not change until end()
  // returns true.
  static Result<std::unique_ptr<Download>> begin(Gradient& gradient, GradientOnHost& memory,
                                                 std::span<const GivenGradient> from, void* stream);
  Download(Gradient& gradient, GradientOnHost& memory) : gradient_(gradient), memory_(memory) {}
  ~Download();  // waits until no copy writes to host memory
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;
  // Adds the gradients to the bucket once they are copied. True if the bucket has them.
  Result<bool> end();

 private:
  struct Staged {
    size_t param;
    DType dtype;
    bool first;  // in this accumulation
    std::shared_ptr<Staging> memory;
  };

  Status copy(std::span<const GivenGradient> from, void* stream);

  Gradient& gradient_;
  GradientOnHost& memory_;
  std::vector<Staged> staged_;
  DeviceEvent copied_;
  bool under_way_ = false;
};

}  // namespace meron
