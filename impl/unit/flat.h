// SPDX-License-Identifier: Apache-2.0
// One dtype's worth of a unit: how it is cut over ranks, and where its values lie on this one.
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

// How a flat is cut.
struct FlatCut {
  FlatDesc desc;
  Range row;     // of the shard axis; see MeshShape of base/layout.h
  Range part;    // of the row: this rank's alone
  Range rest;    // what it holds of the values between gathers: part, row or everything
  Range owned;   // what it updates: part, row, or everything where the optimizer is replicated
  Range summed;  // what the sum of its gradient is of: contains `owned`
};

// Which version of its values is where.
struct FlatVersions {
  uint64_t version = 0;  // the last version in which this flat may have changed
  // Values that stay between gathers (whole ones, and see Unit::keeps_parts): the version that has
  // arrived from this host's ranks, and the one whose exchange between hosts has begun.
  uint64_t fetched = 0;
  uint64_t requested = 0;
  // Whether the encoded values of this version are how they differ from those of the one before:
  // the same on all ranks of the replica axis.
  bool difference = false;
  bool unpacked = false;        // see Flat::packed
  bool secondary_held = false;  // memory of its secondary partition (hpZ of ZeRO++)
};

// One dtype's worth of a unit on this rank.
struct Flat : FlatCut, FlatVersions {
  // Values, whole, in the param dtype, as all ranks see them. Sharded: in the window, side by side
  // with the peers' parts; `values` is the read-only mapping. Replicated: a private copy, of which
  // peers read `owned`.
  const std::byte* values = nullptr;
  std::byte* writable = nullptr;  // the same memory; only `rest` (and what is staged) is written
  // Where values travel by a codec: the exact values of `owned`, which is `part`, and the encoded
  // ones. The window has what comes of decoding, also of this rank's own part.
  std::byte* exact = nullptr;
  std::byte* encoded = nullptr;
  // Frozen values that lie encoded at rest: `encoded` is all of `rest`. `shard`: values that lie
  // on nvme or on the device at rest. The window has both from a gather to its release only, and
  // while they change; `unpacked`: it has the packed ones now, or what has come of decoding
  // `shard`, where that is coded. `on_device`: `shard`, where it lies on the device.
  bool packed = false;
  std::unique_ptr<Shard> shard;
  ShardOnDevice* on_device = nullptr;
  uint64_t window_offset = 0;  // sharded values: where they begin in the window

  // f32 values of `owned` where params have 16 bits and an optimizer holds them; else null.
  MasterAccess* master = nullptr;

  bool coded() const { return exact != nullptr; }
  // Where this rank's exact value of an element of `owned` is.
  std::byte* own(uint64_t element) {
    const uint64_t size = size_of(desc.dtype);
    return exact != nullptr ? exact + (element - owned.begin) * size : writable + element * size;
  }
  uint64_t value_bytes() const { return desc.elements * size_of(desc.dtype); }
};

}  // namespace meron
