// SPDX-License-Identifier: Apache-2.0
#include "unit/gathered_on_device.h"

#include <algorithm>
#include <utility>

namespace meron {

Status GatheredOnDevice::lease(std::span<const Piece> pieces, uint64_t* copied) {
  if (leases_ > 0) return ++leases_, Status(Ok{});
  Device& device = side_.device();
  std::vector<DeviceMemory> memory;
  memory.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    MERON_ASSIGN(DeviceMemory room, device.allocate(piece.bytes, side_.up(), what_));
    memory.push_back(std::move(room));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    *copied += pieces[i].bytes;
    if (!pieces[i].pinned) continue;
    MERON_TRY(device.copy(memory[i].data(), pieces[i].from, pieces[i].bytes, side_.up()));
  }
  MERON_TRY(note_copies());
  memory_ = std::move(memory);
  for (size_t i = 0; i < pieces.size(); ++i) {
    places_.push_back(memory_[i].data());
    if (!pieces[i].pinned) upload_.add(places_[i], pieces[i].from, pieces[i].bytes);
  }
  leases_ = 1;
  return Ok{};
}

Result<bool> GatheredOnDevice::advance(ThreadPool& threads) {
  if (failed_) return *failed_;
  if (upload_.done()) return true;
  if (Status asked = upload_.advance(threads); !asked.ok()) {
    failed_ = std::move(asked).error();
    return *failed_;
  }
  if (!upload_.done()) return false;
  MERON_TRY(note_copies());
  return true;
}

Status GatheredOnDevice::lease_in_place(std::vector<std::byte*> places) {
  if (leases_++ == 0) places_ = std::move(places);
  return Ok{};
}

void GatheredOnDevice::lease_gathered(std::vector<DeviceMemory> memory) {
  if (leases_++ > 0) return;
  memory_ = std::move(memory);
  for (const DeviceMemory& room : memory_) places_.push_back(room.data());
}

Status GatheredOnDevice::note_gathered() {
  MERON_ASSIGN(copied_, side_.device().record(side_.up(), std::move(copied_)));
  return Ok{};
}

Status GatheredOnDevice::note_written() {
  MERON_ASSIGN(copied_, side_.device().record(side_.work(), std::move(copied_)));
  return side_.wake_after(side_.work());
}

Status GatheredOnDevice::unlease(std::span<void* const> users) {
  const bool last = --leases_ == 0;
  Status noted = Ok{};
  if (last && !upload_.done()) {
    upload_.drop();
    // The memory is released after the queued copies.
    noted = note_copies();
  }
  Status followed = Ok{};
  if (memory_.empty()) {
    // They are written again on work().
    for (void* const user : users) {
      Status each = follow(user, side_.work());
      if (followed.ok()) followed = std::move(each);
    }
  } else {
    followed = last ? order_release(users) : note_users(users);
  }
  if (last) {
    memory_.clear();
    places_.clear();
    failed_.reset();
  }
  return noted.ok() ? followed : noted;
}

Status GatheredOnDevice::note_users(std::span<void* const> users) {
  for (void* const stream : users) {
    auto user = std::find_if(users_.begin(), users_.end(),
                             [&](const User& each) { return each.stream == stream; });
    if (user == users_.end()) user = users_.insert(user, User{stream, {}});
    MERON_ASSIGN(user->left, side_.device().record(stream, std::move(user->left)));
  }
  return Ok{};
}

Status GatheredOnDevice::order_release(std::span<void* const> users) {
  // With a single user stream, the release follows in that stream's order. up() does not wait for
  // it and continues with its next work.
  const bool one = users.size() == 1 && side_.device().releases_on_any_stream() &&
                   std::all_of(users_.begin(), users_.end(),
                               [&](const User& each) { return each.stream == users.front(); });
  if (one) {
    users_.clear();
    for (DeviceMemory& memory : memory_) memory.give_back_on(users.front());
    return join(users.front());
  }
  Status ordered = note_users(users);
  for (const User& each : std::exchange(users_, {})) {
    Status waited = side_.device().wait(side_.up(), each.left);
    if (ordered.ok()) ordered = std::move(waited);
  }
  return ordered;
}

Status GatheredOnDevice::begin_copies() {
  return join(side_.up());
}

Status GatheredOnDevice::copy_out(std::byte* to, const std::byte* from, uint64_t bytes) {
  return side_.device().copy(to, from, bytes, side_.up());
}

Status GatheredOnDevice::copy_out(std::span<const meron_cast_task> params, DType type) {
  return side_.device().cast(params, type, type, false, side_.up());
}

Status GatheredOnDevice::follow(void* user, void* stream) {
  MERON_ASSIGN(used_, side_.device().record(user, std::move(used_)));
  return side_.device().wait(stream, used_);
}

Status GatheredOnDevice::note_copies() {
  MERON_ASSIGN(copied_, side_.device().record(side_.up(), std::move(copied_)));
  return side_.wake_after(side_.up());
}

}  // namespace meron
