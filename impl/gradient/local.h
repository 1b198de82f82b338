// SPDX-License-Identifier: Apache-2.0
// A micro-batch whose gradients stay on the rank. It ends when they are copied from the device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradient/gradient.h"

namespace meron {

class LocalOperation final : public Operation {
 public:
  // The gradient is `filling`, and all gradients of the micro-batch have been given.
  static Result<std::shared_ptr<LocalOperation>> begin(std::shared_ptr<Unit> unit,
                                                       Deadline deadline);
  LocalOperation(std::shared_ptr<Unit> unit, Deadline deadline);
  Result<bool> advance() override;
  std::vector<int> missing() const override { return {}; }
  std::string describe() const override;

 private:
  std::shared_ptr<Unit> unit_;
};

}  // namespace meron
