// SPDX-License-Identifier: Apache-2.0
#include "param/download.h"

#include <fmt/format.h>

#include "param/gradient.h"

namespace meron {

Result<std::shared_ptr<Download>> Download::begin(Unit& unit, std::span<const DeviceGradient> from,
                                                  void* stream) {
  std::shared_ptr<Download> download(new Download(unit));
  const std::vector<bool> fresh = unit.fresh;
  Status begun = download->copy(from, stream);
  if (begun.ok()) return download;
  unit.fresh = fresh;  // what has come already counts for nothing
  Error error = std::move(begun).error();
  // With a device that has failed this rank gives no gradient any more: its peers are told.
  if (error.code() == MERON_E_DEVICE) return unit.channel().fail(std::move(error).on(unit.name()));
  return error;
}

Status Download::copy(std::span<const DeviceGradient> from, void* stream) {
  Unit& unit = unit_;
  DeviceSide& side = *unit.rank().device;
  Device& device = side.device();
  MERON_ASSIGN(DeviceEvent written, device.record(stream));
  MERON_TRY(device.wait(side.down(), written));
  for (const DeviceGradient& gradient : from) {
    const Param& param = *unit.params()[gradient.param];
    const uint64_t bytes = param.count * size_of(gradient.dtype);
    if (bytes == 0) continue;
    const bool first = unit.fresh[gradient.param];
    std::byte* to = nullptr;
    if (first && gradient.dtype == unit.gradient_type(unit.flat_of(param))) {
      to = gradient_place(unit, gradient.param, true);
    } else {
      MERON_ASSIGN(auto memory,
                   Staging::allocate(unit.rank().transport.shared_arena(), bytes,
                                     fmt::format("the gradient of '{}'", param.desc.name)));
      to = memory->data();
      unit.fresh[gradient.param] = false;
      staged_.push_back({gradient.param, gradient.dtype, first, std::move(memory)});
    }
    // From here memory of the host is being written: see the destructor.
    under_way_ = true;
    MERON_TRY(device.copy(to, gradient.data, bytes, side.down()));
    add(unit.rank().counters.device_down, bytes);
  }
  MERON_ASSIGN(copied_, device.record(side.down()));
  return side.wake_after(side.down());
}

Download::~Download() {
  if (!under_way_) return;
  DeviceSide& side = *unit_.rank().device;
  (void)side.device().synchronize(side.down());  // a device that has failed writes nothing
}

Result<bool> Download::end() {
  if (ended_) return true;
  MERON_ASSIGN(const bool come, copied_.come());
  if (!come) return false;
  under_way_ = false;
  ended_ = true;
  for (const Staged& staged : staged_) {
    put_gradient(unit_, staged.param, staged.memory->data(), staged.dtype, staged.first);
  }
  staged_.clear();
  return true;
}

DownloadOperation::DownloadOperation(std::shared_ptr<Unit> unit, Deadline deadline)
    : Operation(unit->channel(), deadline), unit_(std::move(unit)) {}

Result<std::shared_ptr<DownloadOperation>> DownloadOperation::begin(std::shared_ptr<Unit> unit,
                                                                    Deadline deadline) {
  std::shared_ptr<DownloadOperation> operation(new DownloadOperation(std::move(unit), deadline));
  Unit& target = *operation->unit_;
  MERON_TRY(target.enter(GradientState::reducing));
  target.reduction = operation;
  return operation;
}

Result<bool> DownloadOperation::advance() {
  auto ended = unit_->download->end();
  if (!ended.ok()) return channel_.fail(std::move(ended).error());
  if (!*ended) return false;
  unit_->download.reset();
  MERON_TRY(unit_->enter(GradientState::partial));
  return true;
}

std::string DownloadOperation::describe() const {
  return fmt::format("copy of the gradient of unit '{}' from the device", unit_->name());
}

}  // namespace meron
