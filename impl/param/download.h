// SPDX-License-Identifier: Apache-2.0
// Gradients on their way from the device into a unit's bucket: straight to their place where they
// are the first of an accumulation and of its dtype, else through memory of the host, from where
// they are converted or added.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collective/operation.h"
#include "param/device_side.h"
#include "param/staging.h"
#include "param/unit.h"

namespace meron {

// The whole gradient of a param, in memory of the device.
struct DeviceGradient {
  size_t param = 0;  // of the unit
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
};

class Download {
 public:
  // The unit is `filling`. The copies begin after what was asked of `stream` so far; the gradients
  // must stay as they are until it has ended.
  static Result<std::shared_ptr<Download>> begin(Unit& unit, std::span<const DeviceGradient> from,
                                                 void* stream);
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

  explicit Download(Unit& unit) : unit_(unit) {}
  Status copy(std::span<const DeviceGradient> from, void* stream);

  Unit& unit_;
  std::vector<Staged> staged_;
  DeviceEvent copied_;
  bool under_way_ = false, ended_ = false;
};

// A micro-batch that stays on the rank, until its gradients have come from the device.
class DownloadOperation final : public Operation {
 public:
  // The unit is `filling`, its download has begun.
  static Result<std::shared_ptr<DownloadOperation>> begin(std::shared_ptr<Unit> unit,
                                                          Deadline deadline);
  Result<bool> advance() override;
  std::vector<int> missing() const override { return {}; }
  std::string describe() const override;

 private:
  DownloadOperation(std::shared_ptr<Unit> unit, Deadline deadline);

  std::shared_ptr<Unit> unit_;
};

}  // namespace meron
