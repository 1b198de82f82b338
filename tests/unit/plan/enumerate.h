// SPDX-License-Identifier: Apache-2.0
// The cost of a plan by enumeration: which elements each rank holds, and which ranges it reads from
// which peer. Shares no formula with predict().
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/predict.h"

namespace meron::test {

inline uint64_t up(uint64_t value, uint64_t grain) {
  return value % grain == 0 ? value : value + grain - value % grain;
}

inline uint64_t buffer(uint64_t bytes) {
  return up(bytes, 4096) + (bytes >= kColorThreshold ? kColorReserve : 0);
}

// Piece k of `count` of n elements: equally long in blocks of 256, the last ones shorter.
inline uint64_t cut(uint64_t n, uint64_t k, uint64_t count) {
  uint64_t longest = n / count;
  if (n % count != 0) ++longest;
  longest = up(longest, 256);
  for (; k > 0; --k) n -= std::min(n, longest);
  return std::min(n, longest);
}

inline uint64_t encoded(const Codec& codec, uint64_t elements, uint64_t size) {
  switch (codec.kind) {
    case CodecKind::none:
      return elements * size;
    case CodecKind::bf16:
      return elements * 2;
    case CodecKind::int8:
      return up(elements, codec.block) / codec.block * (codec.block + 4);
    case CodecKind::int4:
      return up(elements, codec.block) / codec.block * (codec.block / 2 + 4);
  }
  return 0;
}

// A codec with an error limit may fall back to bf16; values without a base for a difference take 16
// bits.
inline uint64_t room_for(const Codec& codec, uint64_t elements, uint64_t size) {
  const uint64_t bytes = encoded(codec, elements, size);
  return codec.error_limit > 0 || codec.difference ? std::max(bytes, elements * 2) : bytes;
}

class Enumerator {
 public:
  Enumerator(const Plan& plan, const Workload& load, uint64_t shards)
      : plan_(plan),
        load_(load),
        shards_(shards),
        replicas_(load.ranks / shards),
        node_(load.node == 0 ? load.ranks : load.node) {}

  RankPrediction of(const ModelDesc& model, uint64_t rank) {
    rank_ = rank;
    out_ = {};
    uint64_t largest = 0;
    for (const UnitDesc& unit : model.units) {
      uint64_t bucket = 0;
      for (const FlatDesc& flat : unit.flats) {
        n_ = flat.elements;
        size_ = size_of(flat.dtype);
        frozen_ = !flat.trainable;
        params();
        if (frozen_) continue;
        gradients(plan_.gradient.dtype.value_or(flat.dtype));
        if (is_sharded(plan_.gradient)) bucket += up(n_ * gsize_, 4096) + exchange();
      }
      largest = std::max(largest, bucket);
    }
    if (is_sharded(plan_.gradient)) {
      out_.memory.gradient_buckets = plan_.gradient.buckets * buffer(largest);
    }
    return out_;
  }

 private:
  using Ranks = std::vector<uint64_t>;

  uint64_t replica(uint64_t r) const { return r / shards_; }
  uint64_t position(uint64_t r) const { return r % shards_; }
  bool local(uint64_t a, uint64_t b) const { return a / node_ == b / node_; }
  uint64_t shard(uint64_t r) const { return cut(n_, position(r), shards_); }
  uint64_t sub_shard(uint64_t r) const { return cut(shard(r), replica(r), replicas_); }
  uint64_t held(Sharding sharding, uint64_t r) const {
    return sharding == Sharding::none ? n_ : sharding == Sharding::shard ? shard(r) : sub_shard(r);
  }
  bool over_all_ranks(const Row& entry) const {
    return entry.sharding == Sharding::world || (replicas_ == 1 && is_sharded(entry));
  }

  Ranks shard_axis() const {
    Ranks out;
    for (uint64_t r = 0; r < load_.ranks; ++r) {
      if (replica(r) == replica(rank_)) out.push_back(r);
    }
    return out;
  }
  Ranks replica_axis() const {
    Ranks out;
    for (uint64_t r = 0; r < load_.ranks; ++r) {
      if (position(r) == position(rank_)) out.push_back(r);
    }
    return out;
  }
  Ranks all_ranks() const {
    Ranks out;
    for (uint64_t r = 0; r < load_.ranks; ++r) out.push_back(r);
    return out;
  }

  // The remote ranks of an axis whose data this rank stages for its node: the axis' local ranks
  // take turns.
  Ranks staged(const Ranks& axis) const {
    Ranks local_peers, out;
    for (const uint64_t r : axis) {
      if (local(r, rank_)) local_peers.push_back(r);
    }
    for (const uint64_t owner : axis) {
      if (local(owner, rank_)) continue;
      size_t turn = 0;
      for (const uint64_t r : axis) turn += local(r, owner) && r < owner;
      if (local_peers[turn % local_peers.size()] == rank_) out.push_back(owner);
    }
    return out;
  }

  bool packed() const { return frozen_ && plan_.param.frozen_int8; }
  bool coded() const {
    const CodecKind kind = plan_.param.codec.kind;
    if (packed() || replicas_ == 1 || kind == CodecKind::none) return false;
    return kind != CodecKind::bf16 || size_ == 4;
  }
  uint64_t param_wire(uint64_t elements) const {
    if (packed()) return encoded(frozen_codec(), elements, size_);
    return coded() ? encoded(plan_.param.codec, elements, size_) : elements * size_;
  }

  void params() {
    MemoryPrediction& memory = out_.memory;
    LinkPrediction& links = out_.links;
    if (!is_sharded(plan_.param)) {
      memory.param += buffer(n_ * size_);
      if (!frozen_ && is_sharded(plan_.optimizer)) fetch_updated_of_unsharded();
      return;
    }
    const uint64_t own = held(plan_.param.sharding, rank_);
    memory.param += packed() ? buffer(encoded(frozen_codec(), own, size_)) : own * size_;
    if (coded()) {
      memory.param += buffer(sub_shard(rank_) * size_);
      memory.param += buffer(room_for(plan_.param.codec, sub_shard(rank_), size_));
    }

    // It stages sub-shards along the replica axis and shards along the shard axis, and maps the
    // rest.
    uint64_t sub_shards = 0, sub_shards_wire = 0, shards = 0, shards_wire = 0;
    if (plan_.param.sharding == Sharding::world) {
      for (const uint64_t owner : staged(replica_axis())) {
        sub_shards += sub_shard(owner);
        sub_shards_wire += param_wire(sub_shard(owner));
      }
    }
    for (const uint64_t owner : staged(shard_axis())) {
      shards += shard(owner);
      shards_wire += replicas_ == 1 ? param_wire(shard(owner)) : shard(owner) * size_;
    }
    if (plan_.param.secondary_partition) memory.secondary_partition += sub_shards * size_;
    for (uint32_t gather = 0; gather < load_.micro_batches * load_.gathers_per_micro_batch;
         ++gather) {
      // Frozen ones were staged by the first gather of the run.
      const bool valid = plan_.param.secondary_partition && (frozen_ || gather > 0);
      links.gather_mapped += (n_ - own - sub_shards - shards) * size_;
      links.gather_copied += (valid ? shards : shards + sub_shards) * size_;
      links.inter_node_gather += valid ? shards_wire : shards_wire + sub_shards_wire;
    }
    if (!frozen_ && plan_.param.sharding == Sharding::shard &&
        plan_.optimizer.sharding == Sharding::world) {
      for (const uint64_t owner : replica_axis()) {
        if (owner == rank_) continue;
        links.gather_copied += sub_shard(owner) * size_;
        if (!local(owner, rank_)) links.inter_node_gather += param_wire(sub_shard(owner));
      }
    }
  }

  // Once a step, from the ranks that have updated: sub-shards of all ranks, or shards of this
  // replica.
  void fetch_updated_of_unsharded() {
    const bool sub_shards = plan_.optimizer.sharding == Sharding::world;
    const Ranks axis = sub_shards ? all_ranks() : shard_axis();
    for (const uint64_t owner : axis) {
      if (owner != rank_) {
        out_.links.gather_copied += (sub_shards ? sub_shard(owner) : shard(owner)) * size_;
      }
    }
    for (const uint64_t owner : staged(axis)) {
      out_.links.inter_node_gather += (sub_shards ? sub_shard(owner) : shard(owner)) * size_;
    }
  }

  void gradients(DType dtype) {
    gsize_ = size_of(dtype);
    MemoryPrediction& memory = out_.memory;
    LinkPrediction& links = out_.links;
    const bool sharded = is_sharded(plan_.gradient);
    const bool by_sub_shards = plan_.gradient.sharding == Sharding::world;
    const Codec& codec = plan_.gradient.codec;
    const uint64_t owned = held(plan_.optimizer.sharding, rank_);
    const uint64_t summed = replicas_ == 1  ? owned
                            : by_sub_shards ? sub_shard(rank_)
                                            : shard(rank_);
    if (sharded || gsize_ == 2) memory.reduced_gradient += buffer(4 * summed);
    // Full gradients of 16 bits are f32 from the second micro-batch on: in a bucket that has grown,
    // or in the sum, if that has all elements.
    if (!sharded && gsize_ == 2 && !plan_.gradient.dtype && !plan_.gradient.rounds &&
        load_.micro_batches > 1) {
      gsize_ = 4;
      memory.gradient_buckets += buffer(n_ * (summed == n_ ? 2 : 4)) + buffer(exchange());
    } else if (!sharded) {
      memory.gradient_buckets += buffer(n_ * gsize_) + buffer(exchange());
    }
    memory.moments += buffer(4 * owned) + buffer(4 * owned);
    if (size_ == 2) memory.master += buffer(4 * owned);
    if (replicas_ > 1 && codec.feedback) memory.feedback += buffer(4 * shard(rank_));

    for (uint32_t batch = 0; batch < load_.micro_batches; ++batch) {
      const bool last = batch + 1 == load_.micro_batches;
      if (sharded || last) {
        for (const uint64_t peer : shard_axis()) {
          if (peer != rank_) take(peer, shard(rank_) * gsize_, links);
        }
      }
      if (by_sub_shards || last) {
        for (const uint64_t peer : replica_axis()) {
          if (peer != rank_) take(peer, encoded(codec, sub_shard(rank_), 4), links);
        }
      }
    }
    if (over_all_ranks(plan_.optimizer)) return;
    for (const uint64_t peer : replicas_ == 1 ? shard_axis() : replica_axis()) {
      if (peer != rank_) take(peer, encoded(codec, sub_shard(peer), 4), links);
    }
  }
  void take(uint64_t peer, uint64_t bytes, LinkPrediction& links) const {
    links.reduce += bytes;
    if (!local(peer, rank_)) links.inter_node_reduce += bytes;
  }

  // The shard's sum if gradients are sharded over replicas; with a codec its sub-shards, each
  // encoded for its owner, and what this rank sends of the sum if replicas need all of it.
  uint64_t exchange() const {
    if (replicas_ == 1) return 0;
    const Codec& codec = plan_.gradient.codec;
    uint64_t bytes = 0;
    if (plan_.gradient.sharding == Sharding::world) bytes += up(4 * shard(rank_), 4096);
    if (codec.kind == CodecKind::none) return bytes;
    uint64_t sub_shards = 0;
    for (const uint64_t owner : replica_axis()) sub_shards += room_for(codec, sub_shard(owner), 4);
    bytes += up(sub_shards, 4096);
    if (plan_.optimizer.sharding != Sharding::world) {
      bytes += up(room_for(codec, sub_shard(rank_), 4), 4096);
    }
    return bytes;
  }

  const Plan& plan_;
  const Workload& load_;
  const uint64_t shards_;
  const uint64_t replicas_;
  const uint64_t node_;

  RankPrediction out_;
  uint64_t rank_ = 0;
  uint64_t n_ = 0;
  uint64_t size_ = 0;
  uint64_t gsize_ = 0;
  bool frozen_ = false;
};

}  // namespace meron::test
