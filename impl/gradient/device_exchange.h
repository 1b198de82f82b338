// SPDX-License-Identifier: Apache-2.0
// The devices of a group's ranks exchange bytes by their own collectives, in stream order. The host
// does not wait.
#pragma once

#include <string>
#include <vector>

#include "device/device_group.h"
#include "gradient/exchange.h"
#include "gradient/on_device.h"

namespace meron {

class DeviceExchange final : public GradientExchange {
 public:
  DeviceExchange(Gradient& gradient, GradientOnDevice& memory, DeviceGroup::Call call);

  Status begin(ExchangeStep step) override;
  Result<bool> done() override { return true; }
  const std::byte* at(size_t flat, int member) const override;
  void consumed() override {}
  Result<bool> parted() override;
  Error fail(const Error& error) override;
  std::vector<int> missing() const override;

 private:
  Status share(DeviceAxis axis);

  Gradient& gradient_;
  GradientOnDevice& memory_;
  const DeviceGroup::Call call_;
  ExchangeStep step_;
};

}  // namespace meron
