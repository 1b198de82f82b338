// SPDX-License-Identifier: Apache-2.0
#include "engine/device_trial.h"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

namespace meron {
namespace {

constexpr uint64_t kTrialBytes = 256;  // from each rank

}  // namespace

Result<DeviceTrial> DeviceTrial::begin(DeviceSide& side, DeviceGroup& devices, DeviceAxis axis,
                                       uint64_t members, uint64_t own_place, uint64_t call,
                                       Deadline deadline) {
  Device& device = side.device();
  const auto sign = static_cast<uint8_t>(own_place + 1);
  MERON_ASSIGN(DeviceMemory room, device.allocate((2 * members + 1) * kTrialBytes, side.work(),
                                                  "trying the devices' collectives"));
  DeviceTrial trial(std::move(room), members);
  std::byte* own = trial.room_.data();
  trial.gathered_ = own + kTrialBytes;
  trial.exchanged_ = trial.gathered_ + members * kTrialBytes;
  if (axis == DeviceAxis::shard && devices.window() != nullptr) {
    MERON_ASSIGN(trial.window_, devices.window()->take(members * kTrialBytes));
  }
  if (trial.window_) {
    trial.gathered_ = trial.window_->data();
    own = trial.gathered_ + own_place * kTrialBytes;
  }
  std::byte* const exchanged = trial.exchanged_;
  MERON_TRY(device.fill(own, sign, kTrialBytes, side.work()));
  MERON_TRY(device.fill(exchanged + own_place * kTrialBytes, sign, kTrialBytes, side.work()));
  MERON_ASSIGN(const DeviceEvent filled, device.record(side.work()));
  MERON_TRY(device.wait(side.up(), filled));
  const DeviceGroup::Part part{own, trial.gathered_, kTrialBytes};
  MERON_TRY(devices.all_gather(axis, std::span(&part, 1), {call, deadline, "trial of a gather"}));
  std::vector<meron_exchange_piece> pieces;
  for (uint64_t m = 0; m < members; ++m) {
    if (m == own_place) continue;
    pieces.push_back(
        {static_cast<int32_t>(m), 0, own, kTrialBytes, exchanged + m * kTrialBytes, kTrialBytes});
  }
  MERON_TRY(devices.exchange(axis, pieces, {call, deadline, "trial of an exchange"}));
  return trial;
}

Status DeviceTrial::check(Device& device, void* stream) const {
  std::vector<std::byte> here(2 * members_ * kTrialBytes);
  const uint64_t half = here.size() / 2;
  MERON_TRY(device.copy(here.data(), gathered_, half, stream));
  MERON_TRY(device.copy(here.data() + half, exchanged_, half, stream));
  MERON_TRY(device.synchronize(stream));
  for (uint64_t i = 0; i < here.size(); ++i) {
    const uint64_t m = i / kTrialBytes % members_;
    if (here[i] == static_cast<std::byte>(static_cast<uint8_t>(m + 1))) continue;
    return Error(
        MERON_E_CORRUPT,
        fmt::format("what came by a trial from rank {} of the axis is not what it sent", m),
        "check the links between the devices");
  }
  return Ok{};
}

Status try_registration(DeviceSide& side, DeviceGroup& devices) {
  MERON_ASSIGN(const DeviceMemory room,
               side.device().allocate(kTrialBytes, side.work(), "trying to register memory"));
  MERON_ASSIGN([[maybe_unused]] const auto tried,
               devices.register_values(room.data(), kTrialBytes));
  return Ok{};
}

}  // namespace meron
