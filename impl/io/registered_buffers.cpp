// SPDX-License-Identifier: Apache-2.0
#include "io/registered_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/human_bytes.h"
#include "os/host.h"

namespace meron {

bool RegisteredBuffers::add(IoRing& ring, std::byte* data, uint64_t bytes) {
  if (!ring.takes_buffers()) return false;
  remove(ring, data);
  // Memory may lack at any point: slots that are taken must be in the range, for remove().
  Range& range = ranges_[data];
  range.slots.reserve(bytes / IoRing::kMaxBufferBytes + 1);
  bool all = true;
  for (uint64_t at = 0; at < bytes; at += IoRing::kMaxBufferBytes) {
    auto slot = ring.add_buffer(data + at, std::min(bytes - at, IoRing::kMaxBufferBytes));
    // If one slot is refused, the others remain useful.
    range.slots.push_back(slot.ok() ? *slot : IoRing::kNone);
    all = all && slot.ok() && *slot != IoRing::kNone;
    if (!slot.ok()) tell_unregistered(slot.error(), bytes);
  }
  range.bytes = bytes;
  return all;
}

void RegisteredBuffers::remove(IoRing& ring, std::byte* data) {
  const auto found = ranges_.find(data);
  if (found == ranges_.end()) return;
  for (const uint32_t slot : found->second.slots) {
    if (slot != IoRing::kNone) ring.remove_buffer(slot);
  }
  ranges_.erase(found);
}

uint32_t RegisteredBuffers::slot_of(const std::byte* data, uint64_t bytes) const {
  const auto after = ranges_.upper_bound(data);
  if (after == ranges_.begin()) return IoRing::kNone;
  const auto& [start, range] = *std::prev(after);
  const auto at = static_cast<uint64_t>(data - start);
  if (at + bytes > range.bytes) return IoRing::kNone;
  const uint64_t slot = at / IoRing::kMaxBufferBytes;
  if ((at + bytes - 1) / IoRing::kMaxBufferBytes != slot) return IoRing::kNone;
  return range.slots[slot];
}

// Only the first refusal is logged.
void RegisteredBuffers::tell_unregistered(const Error& error, uint64_t bytes) {
  if (std::exchange(warned_, true)) return;
  if (error.code() != MERON_E_NO_MEMORY) {
    return shared_.notice(
        fmt::format("{}; storage works without, at a little more CPU time", error.info().what));
  }
  const uint64_t limit = memlock_limit();
  shared_.notice(fmt::format(
      "{} of memory cannot be registered with the kernel, for at most {} may be locked "
      "(RLIMIT_MEMLOCK); storage works without, at a little more CPU time. Raise the limit: "
      "ulimit -l",
      human_bytes(bytes), limit == kNoLimit ? "what is free" : human_bytes(limit)));
}

}  // namespace meron
