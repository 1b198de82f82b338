// SPDX-License-Identifier: Apache-2.0
#include "gradient/device_exchange.h"

#include <algorithm>
#include <utility>

namespace meron {

DeviceExchange::DeviceExchange(Gradient& gradient, GradientOnDevice& memory, DeviceGroup::Call call)
    : gradient_(gradient), memory_(memory), call_(std::move(call)) {}

Status DeviceExchange::begin(ExchangeStep step) {
  step_ = std::move(step);
  const Axes& axes = gradient_.unit().axes();
  if (axes.devices == nullptr || step_.pieces.empty()) return Ok{};
  const DeviceAxis axis = step_.axis == axes.replica ? DeviceAxis::replica : DeviceAxis::shard;
  if (step_.same) return share(axis);
  std::vector<meron_exchange_piece> pieces;
  pieces.reserve(step_.pieces.size());
  for (const ExchangePiece& piece : step_.pieces) {
    pieces.push_back({piece.member, 0, piece.give, piece.give_bytes, piece.to, piece.take_bytes});
  }
  return axes.devices->exchange(axis, pieces, call_);
}

// All-gathers the sums: all parts, this rank's included, are at equal distances.
Status DeviceExchange::share(DeviceAxis axis) {
  std::vector<DeviceGroup::Part> parts;
  const auto own = static_cast<uint64_t>(step_.axis->index());
  for (size_t flat = 0; flat < step_.first.size(); ++flat) {
    if (!gradient_.unit().flats()[flat].desc.trainable) continue;
    const uint64_t stride = memory_.shared_stride(flat);
    if (stride == 0) continue;
    std::byte* const begin = memory_.shared(flat);
    parts.push_back({begin + own * stride, begin, stride});
  }
  return gradient_.unit().axes().devices->share_sums(axis, parts, call_);
}

const std::byte* DeviceExchange::at(size_t flat, int member) const {
  return step_.of(flat, member).to;
}

Result<bool> DeviceExchange::parted() {
  DeviceGroup* const devices = gradient_.unit().axes().devices;
  return devices == nullptr ? true : devices->check(call_.sequence);
}

Error DeviceExchange::fail(const Error& error) {
  return fail_devices(gradient_.unit().channel(), error, call_.sequence);
}

std::vector<int> DeviceExchange::missing() const {
  return gradient_.unit().channel().not_begun(call_.sequence);
}

}  // namespace meron
