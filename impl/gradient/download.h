// SPDX-License-Identifier: Apache-2.0
// Gradients on their way from the device into a bucket of the host: straight to their place where
// they are the first of an accumulation and of its dtype, else through memory of the host, from
// where they are converted or added.
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
  // Of those that lie on the device. The gradient is `filling`. The copies begin after what was
  // asked of `stream` so far; the gradients must stay as they are until it has ended.
  static Result<std::unique_ptr<Download>> begin(Gradient& gradient, GradientOnHost& memory,
                                                 std::span<const GivenGradient> from, void* stream);
  Download(Gradient& gradient, GradientOnHost& memory) : gradient_(gradient), memory_(memory) {}
  ~Download();  // nothing writes to memory of the host any more
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;
  // Whether the bucket has them now.
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
