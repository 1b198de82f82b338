// SPDX-License-Identifier: Apache-2.0
// The shape of a unit: its params, how ranks shard them, its peers, and its words in the shared
// segment.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "plan/unit_layout.h"
#include "rank/axes.h"
#include "rank/rank.h"
#include "unit/flat.h"
#include "unit/slot.h"

namespace meron {

struct Param {
  TensorDesc desc;
  uint64_t count = 0;  // elements
  const Axes* axes = nullptr;
  Unit* unit = nullptr;  // set once, when the unit is made
  TensorPlace place;     // in the unit's layout
};

class UnitShape {
 public:
  UnitShape(const UnitShape&) = delete;
  UnitShape& operator=(const UnitShape&) = delete;

  const std::string& name() const { return name_; }
  Rank& rank() const { return rank_; }
  Channel& channel() const { return *axes_.group; }
  const Axes& axes() const { return axes_; }
  const std::vector<std::shared_ptr<Param>>& params() const { return params_; }
  std::vector<Flat>& flats() { return flats_; }
  Flat& flat_of(const Param& param) { return flats_[param.place.flat]; }
  uint64_t name_hash() const { return name_hash_; }
  uint64_t bytes() const { return bytes_; }  // of the values, whole
  bool trainable() const;
  // True if gathers stage values on this rank or on a local peer.
  bool stages_values() const { return stages_values_; }
  // True if this rank keeps its own values on nvme or on the device.
  bool stores() const { return stores_; }
  // The dtype of the bucket that a member of the group gives to a reduction.
  DType gradient_type(const Flat& flat, int member, uint64_t reduction) const {
    const auto& word = slots_[member].widened[reduction % 2];
    const bool wide = word.load(std::memory_order_seq_cst) == reduction;
    return gradient_dtype(rank_.plan, flat.desc.dtype, wide ? 2 : 1);
  }
  // True if some bucket becomes f32 with the second micro-batch of an accumulation.
  bool may_widen() const;

  UnitSlot& own_slot() { return slots_[axes_.index()]; }
  const UnitSlot& slot(int member) const { return slots_[member]; }
  // reached(): true if the word of all `members` (of the group) is at least `value`. behind(): the
  // members with a smaller one.
  template <class Word>
  bool reached(std::span<const int> members, uint64_t value, Word word) const {
    for (const int m : members) {
      if ((slots_[m].*word).load(std::memory_order_seq_cst) < value) return false;
    }
    return true;
  }
  template <class Word>
  std::vector<int> behind(std::span<const int> members, uint64_t value, Word word) const {
    std::vector<int> late;
    for (const int m : members) {
      if ((slots_[m].*word).load(std::memory_order_seq_cst) < value) late.push_back(m);
    }
    return late;
  }
  // Members of the group on this host, this rank among them: readers of the values that it holds;
  // members that see the same full values; members of its shard axis, and of its replica axis.
  const std::vector<int>& readers() const { return readers_; }
  const std::vector<int>& local_peers() const { return local_peers_; }
  const std::vector<int>& local_shards() const { return local_shards_; }
  const std::vector<int>& local_replicas() const { return local_replicas_; }
  // Indices in `channel` of those `members` of the group that are also in it.
  std::vector<int> places(const Channel& channel, const std::vector<int>& members) const;
  // True if peers read its values and gradients from this rank's memory.
  bool read_by_peers() const { return readers_.size() > 1; }
  // True if any rank's error of the version or exchange `number` is above the limit, or NaN.
  template <class Words>
  bool error_above(uint64_t number, double limit, Words words) const {
    for (int m = 0; m < channel().size(); ++m) {
      const auto& in_turn = slots_[m].*words;
      const uint64_t word = in_turn[number % in_turn.size()].load(std::memory_order_seq_cst);
      if (!(std::bit_cast<float>(static_cast<uint32_t>(word)) <= limit)) return true;
    }
    return false;
  }

 protected:
  UnitShape(Rank& rank, const Axes& axes, std::string name,
            std::vector<std::shared_ptr<Param>> params);
  ~UnitShape() = default;
  // Lays the params out in flats, and finds the peers.
  void lay_out(const UnitLayout& layout);
  // Reserves the words of all members. Returns their offset in the shared segment, and bytes.
  Result<std::pair<uint64_t, uint64_t>> reserve_slots();

  Rank& rank_;
  const Axes& axes_;
  const std::string name_;
  const uint64_t name_hash_;
  const std::vector<std::shared_ptr<Param>> params_;
  std::vector<Flat> flats_;
  UnitSlot* slots_ = nullptr;

 private:
  void find_peers();

  std::vector<int> readers_, local_peers_, local_shards_, local_replicas_;
  bool stages_values_ = false;
  bool stores_ = false;
  uint64_t bytes_ = 0;
};

// The index of a param in its unit.
size_t index_in_unit(const UnitShape& unit, const Param& param);

// The part of `param` within `range` of its flat, in elements of the param.
Range part_of(const Param& param, const Range& range);

}  // namespace meron
