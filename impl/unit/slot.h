// SPDX-License-Identifier: Apache-2.0
// Words in the shared segment that show each rank's progress with a unit.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace meron {

// dtypes times (trainable, frozen)
inline constexpr size_t kMaxFlats = 6;

using FlatOffsets = std::array<std::atomic<uint64_t>, kMaxFlats>;

// Offsets of a member's buffers in its arena, by flat. Those of the bucket are set before
// `contributed`, in turn for odd and even reductions. A rank that is ahead fills the bucket of
// reduction r + 1 while a peer may still read that of r. It cannot begin r + 2 before every peer
// has begun r + 1.
struct SlotOffsets {
  FlatOffsets values{};
  std::array<FlatOffsets, 2> buckets{};
  FlatOffsets sums{};
  FlatOffsets encoded{};
  std::array<FlatOffsets, 2> rows{};  // behind its bucket, a flat's row for the replicas
};

// A member's side of a unit, in the window. Words only grow. Each is stored seq_cst after the data
// that it announces, and followed by Transport::ring.
struct alignas(128) UnitSlot {
  std::atomic<uint64_t> published{0};       // version whose values this member's part holds
  std::atomic<uint64_t> released{0};        // 1 + the last version this member released
  std::atomic<uint64_t> arrived{0};         // gathers for which its share is staged
  std::atomic<uint64_t> views_released{0};  // gathers up to which it reads no values any more
  std::atomic<uint64_t> contributed{0};     // reductions for which its bucket may be read
  std::atomic<uint64_t> shard_ready{0};     // reductions whose row replicas may read
  std::atomic<uint64_t> summed{0};    // reductions whose part, that others need, it has summed
  std::atomic<uint64_t> consumed{0};  // reductions for which it reads no bucket any more
  SlotOffsets offsets{};
  // Errors of encoding, as the bits of a float: one word per version of values and per exchange of
  // gradients, in turn. Peers read them before they encode the next time. A rank of another shard
  // and replica does not wait for this rank's publish: it may be up to two versions ahead.
  std::array<std::atomic<uint64_t>, 3> value_error{};
  std::array<std::atomic<uint64_t>, 2> gradient_error{};
  // In turn for odd and even reductions: the last one for which its buckets are f32 although params
  // are not; see widens() of plan/plan.h. Set before the reduction's call is posted.
  std::array<std::atomic<uint64_t>, 2> widened{};
};

}  // namespace meron
