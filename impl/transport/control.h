// SPDX-License-Identifier: Apache-2.0
// What ranks share of the segment: who is awake, who has left. All of it is at offsets that every
// rank computes alike; nothing in it is a pointer. A group's blocks: call_log/group_control.h.
//
// Who writes what: a rank writes its own RankBlock only, except WindowHeader::sleepers and the
// bells, which any rank changes atomically.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace meron {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

inline constexpr uint64_t kWindowMagic = 0x6e6f72656d000002ull;  // "meron", layout 2
inline constexpr uint32_t kProtocol = 2;
// True if it is that of any version.
inline constexpr bool is_magic(uint64_t magic) {
  constexpr int kLayoutBits = 24;
  return magic >> kLayoutBits == kWindowMagic >> kLayoutBits;
}

// One per rank of the world.
struct alignas(128) RankBlock {
  // Counted up, and its sleepers woken, whenever a peer has changed something this rank may wait
  // for.
  std::atomic<uint32_t> bell{0};
  std::atomic<uint32_t> sleeping{0};  // threads of this rank asleep on the bell
  std::atomic<uint32_t> left{0};      // 1: the context was closed
};

struct alignas(128) WindowHeader {
  uint64_t magic = 0;
  uint32_t world_size = 0;
  // Threads of any rank asleep: the one word that a rank looks at before it rings bells. A rank
  // that dies asleep leaves it too high, which costs its peers time and nothing else.
  std::atomic<uint32_t> sleepers{0};
};

// Slots of the ring: how far a rank may run ahead of the slowest, and what the recorder keeps.
inline constexpr uint64_t kRing = 1024;

// Of the messages between nodes of a call's `phase`: 1 to 2^28 - 1, and of no other call that is
// under way, since no member of a channel is more than kRing calls ahead.
inline constexpr uint64_t kTagCalls = 4 * kRing;
constexpr uint64_t tag_of(uint32_t channel, uint64_t sequence, uint32_t phase) {
  return uint64_t{channel + 1} << 15 | (sequence % kTagCalls) << 3 | phase;
}
constexpr bool same_channel(uint64_t tag, uint64_t other) {
  return tag >> 15 == other >> 15;
}
// True if a tag's call was made before another's of the channel.
constexpr bool earlier_call(uint64_t tag, uint64_t other) {
  const uint64_t ahead = ((other >> 3) - (tag >> 3)) % kTagCalls;
  return ahead != 0 && ahead < kTagCalls / 2;
}

// Staging for collectives on plain memory: two halves, used in turn.
inline constexpr uint64_t kStagingChunk = 32 << 10;

constexpr uint64_t header_bytes(uint64_t world_size) {
  return sizeof(WindowHeader) + sizeof(RankBlock) * world_size;
}

// Text in a fixed place that peers read: cut, and ended by a NUL.
template <size_t N>
void put_text(char (&to)[N], std::string_view from) {
  const size_t count = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), count);
  to[count] = '\0';
}

}  // namespace meron
