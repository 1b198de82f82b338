// SPDX-License-Identifier: Apache-2.0
#include "shard/shard_on_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meron {

Result<std::unique_ptr<ShardOnDevice>> ShardOnDevice::create(Rank& rank, std::byte* host,
                                                             uint64_t bytes, uint64_t room,
                                                             bool mirrored,
                                                             const std::string& name) {
  std::unique_ptr<ShardOnDevice> values(new ShardOnDevice(rank, host, bytes, mirrored));
  DeviceSide& side = *rank.device;
  MERON_ASSIGN(values->memory_, side.device().allocate(room, side.work(), name));
  values->room_ = room;
  add(rank.counters.device.held, room);
  MERON_TRY(side.device().fill(values->data(), 0, room, side.work()));
  if (mirrored) rank.pin(host, bytes);
  return values;
}

ShardOnDevice::~ShardOnDevice() {
  rank_.counters.device.held.fetch_sub(room_ + secondary_room_);
}

Status ShardOnDevice::hold_secondary(uint64_t room, const std::string& name) {
  if (room == 0) return Ok{};
  DeviceSide& side = *rank_.device;
  MERON_ASSIGN(secondary_, side.device().allocate(room, side.up(), name));
  secondary_room_ = room;
  add(rank_.counters.device.held, room);
  return Ok{};
}

Status ShardOnDevice::settle() {
  if (error_) return *error_;
  if (!reading_ && !writing_) return Ok{};
  const auto come = copied_.come();
  if (!come.ok()) {
    error_ = come.error();
    return *error_;
  }
  if (!*come) return Ok{};
  here_ = here_ || reading_;
  reading_ = writing_ = false;
  return Ok{};
}

Status ShardOnDevice::transfer(void* to, const void* from, std::atomic<uint64_t>& counter) {
  DeviceSide& side = *rank_.device;
  MERON_TRY(side.device().copy(to, from, bytes_, side.work()));
  MERON_ASSIGN(copied_, side.device().record(side.work(), std::move(copied_)));
  add(counter, bytes_);
  return side.wake_after(side.work());
}

Result<bool> ShardOnDevice::stage() {
  MERON_TRY(settle());
  if (here_ || bytes_ == 0) return true;
  if (reading_) return false;
  if (!stored_) {
    const Recess recess(bytes_ >= kLongBytes);
    std::fill_n(host_, bytes_, std::byte{0});
    here_ = true;
    return true;
  }
  // Behind what is still being written, in the order of the stream.
  if (Status begun = transfer(host_, data(), rank_.counters.device.down); !begun.ok()) {
    error_ = std::move(begun).error();
    return *error_;
  }
  reading_ = true;
  writing_ = false;
  MERON_TRY(settle());
  return here_;
}

Result<bool> ShardOnDevice::open(bool whole) {
  MERON_TRY(settle());
  if (reading_ || writing_) return false;
  if (!whole) {
    MERON_ASSIGN(const bool here, stage());
    opened_ = here;
    return here;
  }
  here_ = opened_ = true;
  return true;
}

void ShardOnDevice::store() {
  if (bytes_ == 0) return;
  stored_ = true;
  // If the device has written the values, the host's memory has old ones.
  if (!std::exchange(opened_, false)) {
    here_ = false;
    return;
  }
  if (Status begun = transfer(data(), host_, rank_.counters.device.up); !begun.ok()) {
    error_ = std::move(begun).error();
    return;
  }
  writing_ = true;
}

void ShardOnDevice::forget() {
  if (mirrored_) return;
  here_ = reading_ = false;
}

Status ShardOnDevice::read(uint64_t offset, uint64_t bytes, std::byte* out) {
  MERON_TRY(settle());
  if (bytes == 0) return Ok{};
  if (!stored_) {
    const Recess recess(bytes >= kLongBytes);
    std::fill_n(out, bytes, std::byte{0});
    return Ok{};
  }
  // Behind what is still being written, in the order of the stream. Memory that is not pinned keeps
  // the thread until it is copied.
  const Recess recess;
  DeviceSide& side = *rank_.device;
  MERON_TRY(side.device().copy(out, data() + offset, bytes, side.work()));
  add(rank_.counters.device.down, bytes);
  return side.device().synchronize(side.work());
}

bool ShardOnDevice::busy() const {
  if (!reading_ && !writing_) return false;
  const auto come = copied_.come();
  return come.ok() && !*come;
}

void ShardOnDevice::wait(int64_t /*timeout_ns*/) const {
  if (!busy()) return;
  DeviceSide& side = *rank_.device;
  (void)side.device().synchronize(side.work());  // copied_ reports a failure
}

std::string ShardOnDevice::describe() const {
  return fmt::format("a copy {} {} is under way", writing_ ? "to" : "from",
                     rank_.device->device().name());
}

}  // namespace meron
