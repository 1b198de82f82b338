// SPDX-License-Identifier: Apache-2.0
// A unit's data of one dtype: how ranks shard it, and where its values reside on this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/layout.h"
#include "plan/unit_layout.h"
#include "shard/master_access.h"
#include "shard/shard_on_device.h"

namespace meron {

// The ranges of a flat.
struct FlatCut {
  FlatDesc desc;
  Range row;     // of the shard axis; see MeshShape of base/layout.h
  Range part;    // of the row: this rank's alone
  Range rest;    // the values that this rank holds between gathers: part, row or everything
  Range owned;   // the values that it updates: part, row, or everything with a replicated optimizer
  Range summed;  // the range of its reduced gradient: contains `owned`
};

// Versions of a flat's values.
struct FlatVersions {
  uint64_t version = 0;  // the last version in which this flat may have changed
  // Values that stay between gathers (whole ones, and see Unit::keeps_parts): the version that has
  // arrived from this host's ranks, and the one whose exchange between hosts has begun.
  uint64_t fetched = 0;
  uint64_t requested = 0;
  // True if this version is encoded as its difference to the one before. All ranks of the replica
  // axis agree.
  bool difference = false;
  bool unpacked = false;        // see Flat::packed
  bool secondary_held = false;  // memory of its secondary partition (hpZ of ZeRO++)
};

// One dtype's worth of a unit on this rank.
struct Flat : FlatCut, FlatVersions {
  // The full values in the param dtype, as all ranks see them. Sharded values are in the shared
  // segment, next to the peers' parts. Replicated values are a copy in the arena; peers read its
  // range `owned`. `values` is the read-only mapping, for users.
  const std::byte* values = nullptr;
  std::byte* writable = nullptr;  // the same memory; only `rest` (and what is staged) is written
  // Only if values travel by a codec: the exact values of `owned`, which equals `part`, and the
  // encoded ones. The shared segment has the decoded values, this rank's own part included.
  std::byte* exact = nullptr;
  std::byte* encoded = nullptr;
  // `packed`: frozen values that are kept encoded; `encoded` is then all of `rest`. `shard`: values
  // that are kept on nvme or on the device. The shared segment holds either kind only from a gather
  // to its release and during a change. `unpacked` is then true if it holds the decoded values of
  // `encoded`, or of `shard` with a codec. `on_device`: `shard`, if it is on the device.
  bool packed = false;
  std::unique_ptr<Shard> shard;
  ShardOnDevice* on_device = nullptr;
  uint64_t window_offset = 0;  // sharded values: where they begin in the window

  // f32 values of `owned` where params have 16 bits and an optimizer holds them; else null.
  MasterAccess* master = nullptr;

  bool coded() const { return exact != nullptr; }
  // Address of this rank's exact value of an element of `owned`.
  std::byte* own(uint64_t element) {
    const uint64_t size = size_of(desc.dtype);
    return exact != nullptr ? exact + (element - owned.begin) * size : writable + element * size;
  }
  uint64_t value_bytes() const { return desc.elements * size_of(desc.dtype); }
};

}  // namespace meron
