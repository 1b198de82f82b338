// SPDX-License-Identifier: Apache-2.0
// The layout of optimizer states: in memory one array per state, on tier nvme records that are
// read, updated and written together. Pure arithmetic, by which the engine allocates and the plan
// predicts.
//
// A record has the states of up to kRecord consecutive elements of a flat: their f32 master, if
// parameters have 16 bits; each state in turn; then, of 8-bit states, the scales of each. Records
// of a sub-group (Plan::sub_group elements) are adjacent, and a sub-group fills full
// pages: it is the unit of transfers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/layout.h"
#include "plan/plan.h"
#include "plan/unit_layout.h"

namespace meron {

inline constexpr uint64_t kRecord = 4096;  // elements: some cache lines short of a core's L1 and L2
inline constexpr size_t kMaxStates = 2;    // AdamW's two moments

constexpr uint64_t state_bytes(StateDType dtype, uint64_t elements) {
  switch (dtype) {
    case StateDType::f32:
      break;
    case StateDType::bf16:
      return 2 * elements;
    case StateDType::int8:
      return elements;
  }
  return 4 * elements;
}
// One f32 scale per kBlock elements.
constexpr uint64_t scale_bytes(StateDType dtype, uint64_t elements) {
  return dtype == StateDType::int8 ? (elements + kBlock - 1) / kBlock * sizeof(float) : 0;
}

// The states that an optimizer stores per element of a flat.
struct StateShape {
  StateDType dtype = StateDType::f32;
  uint32_t states = kMaxStates;
  bool master = false;  // f32 values beside those of 16 bits

  constexpr bool operator==(const StateShape&) const = default;

  // Bytes of records; `elements` is a multiple of kTensorAlign.
  constexpr uint64_t bytes(uint64_t elements) const {
    return elements / kRecord * record_bytes(kRecord) + record_bytes(elements % kRecord);
  }
  // Offsets in a record of `elements`.
  constexpr uint64_t state_offset(uint64_t elements, uint32_t state) const {
    return (master ? elements * sizeof(float) : 0) + state * state_bytes(dtype, elements);
  }
  constexpr uint64_t scale_offset(uint64_t elements, uint32_t state) const {
    return state_offset(elements, states) + state * scale_bytes(dtype, elements);
  }

 private:
  constexpr uint64_t record_bytes(uint64_t elements) const {
    return scale_offset(elements, states);
  }
};

inline StateShape state_shape(const Plan& plan, const FlatDesc& flat, uint32_t states) {
  return {.dtype = plan.optimizer.dtype, .states = states, .master = flat.dtype != DType::f32};
}

// Of the elements that a rank updates, those whose states are on the host (the first ones) and
// those on nvme; or all are on the device.
struct StateSplit {
  Range host, nvme, device;
};
inline StateSplit split_states(const Plan& plan, const StateShape& shape, const Range& owned) {
  const Range none{owned.end, owned.end};
  // SGD without momentum stores nothing for f32 values, so no record exists that a pass over the
  // drive could update.
  const bool has_records = shape.bytes(kTensorAlign) > 0;
  if (plan.optimizer.tier == Tier::host || (plan.optimizer.tier == Tier::nvme && !has_records)) {
    return {owned, none, none};
  }
  if (plan.optimizer.tier == Tier::device) return {none, none, owned};
  const double share = static_cast<double>(owned.size()) * plan.optimizer.fraction;
  const uint64_t on_nvme = std::min(owned.size(), static_cast<uint64_t>(std::ceil(share)));
  const uint64_t on_host = (owned.size() - on_nvme) / kBlock * kBlock;
  return {{owned.begin, owned.begin + on_host}, {owned.begin + on_host, owned.end}, none};
}

// Sub-groups follow each other from the begin of a flat's range.
constexpr uint64_t sub_group_bytes(const StateShape& shape, uint64_t elements) {
  return round_up(shape.bytes(elements), kPage);
}
// Bytes in the file of a flat with `elements` elements on nvme.
constexpr uint64_t nvme_bytes(const StateShape& shape, uint64_t sub_group, uint64_t elements) {
  return elements / sub_group * sub_group_bytes(shape, sub_group) +
         sub_group_bytes(shape, elements % sub_group);
}
// Bytes of the largest transfer of such a flat.
constexpr uint64_t largest_sub_group(const StateShape& shape, uint64_t sub_group,
                                     uint64_t elements) {
  return sub_group_bytes(shape, std::min(sub_group, elements));
}
// Memory of the transfers' buffers, if the largest transfer takes `largest`.
constexpr uint64_t state_buffers_bytes(const Plan& plan, uint64_t largest) {
  return plan.optimizer.buffers * largest;
}

}  // namespace meron
