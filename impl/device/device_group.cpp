// SPDX-License-Identifier: Apache-2.0
#include "device/device_group.h"

#include "base/held.h"

namespace meron {

Error fail_devices(Channel& channel, const Error& error, uint64_t sequence) {
  const Status present = channel.check_present(sequence, Deadline::never());
  return present.ok() ? channel.fail(error) : present.error();
}

Result<bool> DeviceLaunch::advance() {
  MERON_ASSIGN(const bool done, done_.come());
  if (done) return true;
  if (const auto ready = communicator_->ready(); !ready.ok()) {
    return fail_devices(channel_, ready.error(), sequence());
  }
  return false;
}

Status DeviceGroup::take_turn(void* stream) {
  if (turn_stream_ == stream || turn_stream_ == nullptr) return Ok{};
  return side_.device().wait(stream, turn_);
}

Status DeviceGroup::note(const Communicator& communicator, void* stream, Call call) {
  MERON_ASSIGN(turn_, side_.device().record(stream, std::move(turn_)));
  turn_stream_ = stream;
  // No more than one is added, so that two at a time keep the list short.
  for (int looks = 0; looks < 2 && !launches_.empty(); ++looks) {
    const auto come = launches_.front()->come();
    if (!come.ok() || !*come) break;
    if (launches_.front().use_count() == 1) events_.push_back(launches_.front()->take_event());
    launches_.pop_front();
  }
  DeviceEvent again;
  if (!events_.empty()) {
    again = std::move(events_.back());
    events_.pop_back();
  }
  MERON_ASSIGN(DeviceEvent done, side_.device().record(stream, std::move(again)));
  launches_.push_back(std::make_shared<DeviceLaunch>(
      channel_, call.deadline, call.sequence, communicator, std::move(done), std::move(call.what)));
  return Ok{};
}

Status DeviceGroup::gather_by(const Communicator& communicator, std::span<const Part> parts,
                              void* stream, Call call) {
  MERON_TRY(take_turn(stream));
  const auto launch = [&]() -> Status {
    const Recess recess;
    MERON_TRY(communicator->begin_group());
    Status asked = Ok{};
    for (const Part& part : parts) {
      asked = communicator->all_gather(part.from, part.to, part.bytes, stream);
      if (!asked.ok()) break;
    }
    Status launched = communicator->end_group();
    return asked.ok() ? launched : asked;
  };
  MERON_TRY(launch());
  return note(communicator, stream, std::move(call));
}

Status DeviceGroup::all_gather(DeviceAxis axis, std::span<const Part> parts, Call call) {
  return gather_by(pair(axis).gathers, parts, side_.up(), std::move(call));
}

Status DeviceGroup::share_sums(DeviceAxis axis, std::span<const Part> parts, Call call) {
  return gather_by(pair(axis).sums, parts, side_.work(), std::move(call));
}

Status DeviceGroup::exchange(DeviceAxis axis, std::span<const meron_exchange_piece> pieces,
                             Call call) {
  const Communicator& communicator = pair(axis).sums;
  void* const stream = side_.work();
  MERON_TRY(take_turn(stream));
  const auto launch = [&] {
    const Recess recess;
    return communicator->exchange(pieces, stream);
  };
  MERON_TRY(launch());
  return note(communicator, stream, std::move(call));
}

Result<std::vector<DeviceRegistration>> DeviceGroup::register_values(std::byte* data,
                                                                     uint64_t bytes) const {
  const Recess recess;  // no other thread has the memory yet
  std::vector<DeviceRegistration> kept;
  for (const Pair& pair : pairs_) {
    if (!registers_ || !pair.gathers || bytes == 0) continue;
    MERON_ASSIGN(kept.emplace_back(), pair.gathers->register_memory(data, bytes));
  }
  return kept;
}

std::shared_ptr<DeviceLaunch> DeviceGroup::oldest() {
  while (!launches_.empty()) {
    const auto come = launches_.front()->come();
    if (!come.ok() || !*come) return launches_.front();
    launches_.pop_front();
  }
  return nullptr;
}

Status DeviceGroup::status() const {
  for (const Pair& pair : pairs_) {
    for (const Communicator& communicator : {pair.gathers, pair.sums}) {
      if (!communicator) continue;
      if (const auto ready = communicator->ready(); !ready.ok()) return ready.error();
    }
  }
  return Ok{};
}

Result<bool> DeviceGroup::check(uint64_t sequence) {
  // Who has called something else is to blame, and not the library.
  MERON_ASSIGN(const bool agreed, channel_.agreed(sequence));
  if (const Status well = status(); !well.ok()) {
    return fail_devices(channel_, well.error(), sequence);
  }
  // Between nodes values may come before the record of the call that they belong to.
  return agreed || channel_.link() == nullptr;
}

std::vector<DeviceGroup::Communicator> DeviceGroup::take_for_abort() {
  std::vector<Communicator> taken;
  if (std::exchange(aborted_, true)) return taken;
  for (const Pair& pair : pairs_) {
    for (const Communicator& communicator : {pair.gathers, pair.sums}) {
      if (communicator) taken.push_back(communicator);
    }
  }
  return taken;
}

void DeviceGroup::close() {
  launches_.clear();
  if (window_) window_->close();
  for (const Pair& pair : pairs_) {
    for (const Communicator& communicator : {pair.gathers, pair.sums}) {
      // The group has ended, so its error no longer matters.
      if (communicator) (void)communicator->close();
    }
  }
}

}  // namespace meron
