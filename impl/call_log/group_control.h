// SPDX-License-Identifier: Apache-2.0
// The blocks by which the ranks of a group stay in step, in the shared segment. A rank writes its
// own MemberBlock only; any rank may claim GroupHeader::failed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "call_log/call.h"
#include "transport/control.h"

namespace meron {

// The group's error. The finder writes it before it claims GroupHeader::failed.
struct FailureRecord {
  int32_t code = 0;
  int32_t finder = -1;   // world rank
  int32_t culprit = -1;  // world rank
  uint32_t steps = 0;    // optimizer steps that the finder had begun
  char operation[128] = {};
  char subject[96] = {};
  char what[640] = {};
  char advice[160] = {};
};

// Room for a sum that travels with an optimizer step; see optim/norm.h.
inline constexpr size_t kNormBytes = 1024;

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
}  // namespace meron
