// SPDX-License-Identifier: Apache-2.0
// What the ranks of a host keep in shared memory to stay in step. All of it lies in the window, at
// offsets that every rank computes alike; nothing in it is a pointer.
//
// Who writes what: a rank writes its own RankBlock and MemberBlocks only, with two exceptions that
// any rank may touch atomically: WindowHeader::sleepers, the bells, and GroupHeader::failed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace meron {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

inline constexpr uint64_t kWindowMagic = 0x6e6f72656d000002ull;  // "meron", layout 2
inline constexpr uint32_t kProtocol = 1;
// Whether it is that of any version.
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

// One collective call, as the flight recorder shows it and peers check it. Stored as words so that
// a reader of a slot that is being overwritten sees mixed contents, never a data race.
struct CallRecord {
  uint64_t sequence = 0;     // 1, 2, ... per group
  uint64_t fingerprint = 0;  // of everything that must be equal on all ranks
  uint64_t bytes = 0;
  int64_t begun_ns = 0;  // monotonic clock
  uint32_t operation = 0;
  uint32_t reserved = 0;
  char subject[88] = {};  // NUL-terminated, cut
};
static_assert(sizeof(CallRecord) == 128);

class CallSlot {
 public:
  void store(const CallRecord& record);
  CallRecord load() const;
  uint64_t fingerprint() const { return words_[1].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, sizeof(CallRecord) / 8> words_{};
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
// Whether a tag's call was made before another's of the channel.
constexpr bool earlier_call(uint64_t tag, uint64_t other) {
  const uint64_t ahead = ((other >> 3) - (tag >> 3)) % kTagCalls;
  return ahead != 0 && ahead < kTagCalls / 2;
}

// What broke the group, written by its finder before it claims GroupHeader::failed.
struct FailureRecord {
  int32_t code = 0;
  int32_t finder = -1;   // world rank
  int32_t culprit = -1;  // world rank
  char operation[128] = {};
  char subject[96] = {};
  char what[640] = {};
  char advice[160] = {};
};

// Room for a sum that travels with an optimizer step; see optim/norm.h.
inline constexpr size_t kNormBytes = 1024;

// Staging for collectives on plain memory: two halves, used in turn.
inline constexpr uint64_t kStagingChunk = 32 << 10;

// One per member of a group.
struct alignas(4096) MemberBlock {
  std::atomic<uint64_t> posted{0};               // sequence number of the last call begun
  alignas(128) std::atomic<uint64_t> staged{0};  // chunks put into staging[]
  std::atomic<uint64_t> drained{0};              // chunks of the others that were read
  // Slots are used in turn: a rank can write slot s % 2 for step s + 2 only after every peer has
  // begun step s + 1, that is, has read step s.
  std::array<std::atomic<uint64_t>, 2> norm_step{};
  alignas(128) std::array<std::array<std::byte, kNormBytes>, 2> norm{};
  FailureRecord failure;
  std::array<CallSlot, kRing> ring;
  alignas(4096) std::array<std::array<std::byte, kStagingChunk>, 2> staging;
};

struct alignas(128) GroupHeader {
  std::atomic<uint32_t> failed{0};  // 1 + index of the member whose FailureRecord holds, or 0
};

constexpr uint64_t group_bytes(uint64_t members) {
  return sizeof(MemberBlock) * members + 4096;
}
constexpr uint64_t header_bytes(uint64_t world_size) {
  return sizeof(WindowHeader) + sizeof(RankBlock) * world_size;
}

}  // namespace meron
