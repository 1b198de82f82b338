// SPDX-License-Identifier: Apache-2.0
#include "param/device_group.h"

namespace meron {

Result<bool> DeviceLaunch::advance() {
  MERON_ASSIGN(const bool done, done_.come());
  if (done) return true;
  if (const auto ready = communicator_->ready(); !ready.ok()) return channel_.fail(ready.error());
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

Status DeviceGroup::all_gather(std::span<const Part> parts, Call call) {
  void* const stream = side_.up();
  MERON_TRY(take_turn(stream));
  MERON_TRY(gathers_->begin_group());
  Status asked = Ok{};
  for (const Part& part : parts) {
    asked = gathers_->all_gather(part.from, part.to, part.bytes, stream);
    if (!asked.ok()) break;
  }
  Status launched = gathers_->end_group();
  MERON_TRY(std::move(asked));
  MERON_TRY(std::move(launched));
  return note(gathers_, stream, std::move(call));
}

Status DeviceGroup::exchange(std::span<const meron_exchange_piece> pieces, Call call) {
  void* const stream = side_.work();
  MERON_TRY(take_turn(stream));
  MERON_TRY(sums_->exchange(pieces, stream));
  return note(sums_, stream, std::move(call));
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
  for (const Communicator& communicator : {gathers_, sums_}) {
    if (const auto ready = communicator->ready(); !ready.ok()) return ready.error();
  }
  return Ok{};
}

void DeviceGroup::abort() {
  if (std::exchange(aborted_, true)) return;
  // One that cannot be aborted has ended already.
  (void)gathers_->abort();
  (void)sums_->abort();
}

void DeviceGroup::close() {
  launches_.clear();
  // What they say concerns nobody any more.
  (void)gathers_->close();
  (void)sums_->close();
}

}  // namespace meron
