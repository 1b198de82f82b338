// SPDX-License-Identifier: Apache-2.0
#include "gradient/download.h"

#include <fmt/format.h>

#include <utility>

#include "gradient/on_host.h"

namespace meron {

Result<std::unique_ptr<Download>> Download::begin(Gradient& gradient, GradientOnHost& memory,
                                                  std::span<const GivenGradient> from,
                                                  void* stream) {
  auto download = std::make_unique<Download>(gradient, memory);
  const std::vector<bool> fresh = gradient.fresh;
  Status begun = download->copy(from, stream);
  if (begun.ok()) return download;
  gradient.fresh = fresh;  // discards the gradients copied so far
  Unit& unit = gradient.unit();
  Error error = std::move(begun).error();
  // If the device failed, this rank cannot contribute. It reports the failure so that peers stop
  // waiting.
  if (error.code() == MERON_E_DEVICE) return unit.channel().fail(std::move(error).on(unit.name()));
  return error;
}

Status Download::copy(std::span<const GivenGradient> from, void* stream) {
  Unit& unit = gradient_.unit();
  DeviceSide& side = *unit.rank().device;
  Device& device = side.device();
  MERON_ASSIGN(DeviceEvent written, device.record(stream));
  MERON_TRY(device.wait(side.down(), written));
  for (const GivenGradient& each : from) {
    const Param& param = *unit.params()[each.param];
    const uint64_t bytes = param.count * size_of(each.dtype);
    if (!each.on_device || bytes == 0) continue;
    const bool first = gradient_.fresh[each.param];
    std::byte* to = nullptr;
    if (first && each.dtype == gradient_.type_of(unit.flat_of(param))) {
      to = memory_.place_of(each.param, true);
    } else {
      MERON_ASSIGN(auto memory,
                   Staging::allocate(unit.rank().transport.shared_arena(), bytes,
                                     fmt::format("the gradient of '{}'", param.desc.name)));
      to = memory->data();
      gradient_.fresh[each.param] = false;
      staged_.push_back({each.param, each.dtype, first, std::move(memory)});
    }
    // From here on the device writes to host memory: see the destructor.
    under_way_ = true;
    MERON_TRY(device.copy(to, each.data, bytes, side.down()));
    add(unit.rank().counters.device.down, bytes);
  }
  MERON_ASSIGN(copied_, device.record(side.down()));
  return side.wake_after(side.down());
}

Download::~Download() {
  if (!under_way_) return;
  DeviceSide& side = *gradient_.unit().rank().device;
  (void)side.device().synchronize(side.down());  // a failed device writes nothing
}

Result<bool> Download::end() {
  MERON_ASSIGN(const bool come, copied_.come());
  if (!come) return false;
  under_way_ = false;
  for (const Staged& staged : std::exchange(staged_, {})) {
    memory_.put(staged.param, staged.memory->data(), staged.dtype, staged.first);
  }
  return true;
}

}  // namespace meron
