// SPDX-License-Identifier: Apache-2.0
// How tensors lie in a unit and how a unit is cut into shards: pure arithmetic, shared by the plan
// (which predicts) and the engine (which allocates), so that both always agree.
//
// A unit's parameters of one dtype lie one after the other in one *flat*. Each begins at a multiple
// of kTensorAlign elements. A flat of n elements over N ranks is cut into N ranges of
// shard_elements(n, N), the last ones shorter or empty. Cuts fall on multiples of kBlock elements,
// so that a sum over blocks (the gradient norm) has the same parts for every N.
//
// Over a mesh of R replicas x s shards, a flat is cut into s rows, and each row into R parts: rank
// i * s + j owns part i of row j. A rank's part of a row is one range, and so is the union of the
// parts of one replica axis.
#pragma once

#include <algorithm>
#include <cstdint>

namespace meron {

inline constexpr uint64_t kTensorAlign = 32;  // elements: 64 bytes in 16 bits, 128 bytes in f32
inline constexpr uint64_t kBlock = 256;       // elements
inline constexpr uint64_t kPage = 4096;       // bytes: the grain of arena buffers

// Buffers of at least kColorThreshold bytes get kColorReserve bytes more, within which the arena
// staggers their start: streams whose distance is a large power of two alias in the L1 way
// predictor of some CPUs and run up to nine times slower (bench/adamw sweeps the spacing).
inline constexpr uint64_t kColorThreshold = 16ull << 20;
inline constexpr uint64_t kColorStep = 3 * kPage + 5 * 64;
inline constexpr uint64_t kColors = 16;
inline constexpr uint64_t kColorReserve = (kColors * kColorStep + kPage - 1) / kPage * kPage;

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Bytes that the arena charges for a buffer of `bytes`.
constexpr uint64_t footprint(uint64_t bytes) {
  if (bytes == 0) return 0;
  return round_up(bytes, kPage) + (bytes >= kColorThreshold ? kColorReserve : 0);
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  constexpr uint64_t size() const { return end - begin; }
  constexpr bool operator==(const Range&) const = default;
};

// The elements that are in both ranges. Empty if none is.
constexpr Range overlap(const Range& a, const Range& b) {
  const uint64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

constexpr uint64_t shard_elements(uint64_t elements, uint64_t ranks) {
  return round_up((elements + ranks - 1) / ranks, kBlock);
}

// The elements of a flat of `elements` that `rank` of `ranks` owns; empty for late ranks of a
// small flat.
constexpr Range shard_range(uint64_t elements, uint64_t rank, uint64_t ranks) {
  const uint64_t shard = shard_elements(elements, ranks);
  return {std::min(elements, rank * shard), std::min(elements, (rank + 1) * shard)};
}

// The mesh of a group's ranks. Consecutive ranks are neighbours on the shard axis.
struct MeshShape {
  uint64_t shards = 1;
  uint64_t replicas = 1;

  constexpr uint64_t ranks() const { return shards * replicas; }
  constexpr bool operator==(const MeshShape&) const = default;
};

// The row of a flat that `rank`'s replica axis owns.
constexpr Range row_range(uint64_t elements, uint64_t rank, const MeshShape& mesh) {
  return shard_range(elements, rank % mesh.shards, mesh.shards);
}

// The part of its row that `rank` owns alone. Without replicas it is the row.
constexpr Range part_range(uint64_t elements, uint64_t rank, const MeshShape& mesh) {
  const Range row = row_range(elements, rank, mesh);
  const Range part = shard_range(row.size(), rank / mesh.shards, mesh.replicas);
  return {row.begin + part.begin, row.begin + part.end};
}

// Ranks of a node share memory: what a remote rank has is staged once, by the rank at
// `position` (that of the owner among the `importers` of its own node) modulo their number.
constexpr uint64_t importer_of(uint64_t position, uint64_t importers) {
  return position % importers;
}

}  // namespace meron
