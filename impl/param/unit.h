// SPDX-License-Identifier: Apache-2.0
// Params and units: what they are, where their memory lies, and the words in the window through
// which the ranks see how far each is with a unit.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/result.h"
#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/type.h"
#include "memory/arena.h"
#include "param/rank.h"
#include "param/states.h"
#include "plan/unit_layout.h"
#include "transport/channel.h"

namespace meron {

inline kernels::Type kernel_type(DType dtype) {
  return static_cast<kernels::Type>(static_cast<int32_t>(dtype));
}

struct Param {
  TensorDesc desc;
  uint64_t count = 0;  // elements
  Channel* channel = nullptr;
  Unit* unit = nullptr;  // set once, when the unit is made
  TensorPlace place;     // in the unit's layout
};

// dtypes times (trainable, frozen)
inline constexpr size_t kMaxFlats = 6;

// A member's side of a unit, in the window. Words only grow. Each is stored seq_cst after the data
// that it announces, and followed by Transport::ring.
struct alignas(128) UnitSlot {
  std::atomic<uint64_t> published{0};    // version whose values this member's part holds
  std::atomic<uint64_t> released{0};     // 1 + the last version this member let go of
  std::atomic<uint64_t> contributed{0};  // reductions for which its bucket may be read
  std::atomic<uint64_t> summed{0};       // all-reduce: reductions whose part it has summed
  std::atomic<uint64_t> consumed{0};     // reductions for which it reads no bucket any more
  // Where its buffers lie in its arena. The bucket's are set before `contributed` is, in turn for
  // odd and even reductions: a rank that is ahead fills the bucket of reduction r + 1 while a peer
  // may still read that of r, and cannot begin r + 2 before every peer has begun r + 1.
  std::array<std::atomic<uint64_t>, kMaxFlats> value_offset{};
  std::array<std::array<std::atomic<uint64_t>, kMaxFlats>, 2> bucket_offset{};
  std::array<std::atomic<uint64_t>, kMaxFlats> sum_offset{};
};

// One dtype's worth of a unit on this rank.
struct Flat {
  FlatDesc desc;
  Range part;   // the shard of this rank
  Range owned;  // what this rank updates: `part`, or everything where the optimizer is replicated

  // Values, whole, in the param dtype. Sharded: in the window, side by side with the peers' parts;
  // `values` is the read-only mapping. Replicated: a private copy, of which peers read `part`.
  const std::byte* values = nullptr;
  std::byte* writable = nullptr;  // the same memory; only `owned` (and fetched parts) are written
  uint64_t version = 0;           // the last version in which this flat may have changed
  uint64_t fetched = 0;        // replicated values: the version that the private copy is whole in
  uint64_t requested = 0;      // remote ranks: the version whose exchange has begun
  uint64_t window_offset = 0;  // sharded values: where they begin in the window

  // Gradient. bucket: n elements of the gradient dtype, valid while filling and reducing
  // (persistent where gradients are whole). sum: f32, of `owned`.
  std::byte* bucket = nullptr;
  float* sum = nullptr;

  // f32 values of `owned` where params have 16 bits and an optimizer holds them; else null.
  float* master = nullptr;

  uint64_t value_bytes() const { return desc.elements * size_of(desc.dtype); }
};

// Its memory is never given back while the arena lives: a peer may be a step behind, and read it
// after this rank's context has closed.
class Unit {
 public:
  // Lays out the params and reserves memory by the plan. The caller has posted the call.
  static Result<std::shared_ptr<Unit>> create(Rank& rank, Channel& channel, std::string name,
                                              std::vector<std::shared_ptr<Param>> params);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  Rank& rank() const { return rank_; }
  Channel& channel() const { return channel_; }
  const std::vector<std::shared_ptr<Param>>& params() const { return params_; }
  std::vector<Flat>& flats() { return flats_; }
  Flat& flat_of(const Param& param) { return flats_[param.place.flat]; }
  uint64_t name_hash() const { return name_hash_; }
  uint64_t bytes() const { return bytes_; }  // of the values, whole
  bool trainable() const;
  DType gradient_type(const Flat& flat) const {
    return gradient_dtype(rank_.plan, flat.desc.dtype);
  }

  UnitSlot& own_slot() { return slots_[channel_.index()]; }
  const UnitSlot& slot(int member) const { return slots_[member]; }
  template <class Word>
  bool all_reached(uint64_t value, Word word) const {
    for (int m = 0; m < channel_.size(); ++m) {
      if ((slots_[m].*word).load(std::memory_order_seq_cst) < value) return false;
    }
    return true;
  }
  template <class Word>
  std::vector<int> behind(uint64_t value, Word word) const {
    return channel_.below(value,
                          [&](int m) { return (slots_[m].*word).load(std::memory_order_seq_cst); });
  }

  // Values.
  ValueState state() const { return state_; }
  Status enter(ValueState state);  // MERON_E_INTERNAL for a transition that states.h forbids
  uint64_t version() const { return version_; }
  uint32_t leases() const { return leases_; }
  void lease() { ++leases_; }
  Status unlease();
  // MERON_E_STATE while a lease or an update stands against a new update.
  Status check_updatable() const;
  // Lets go of the present version: from here to publish(), peers may not rely on this rank's
  // reads.
  Status release_version();
  // Whether nobody uses the present version any more: peers have let go of it, or, where ranks
  // share no memory, what was sent of it has gone.
  bool all_released();
  std::vector<int> unreleased() const;

  // Where ranks share no memory: the values of peers are made room for while they are needed, and
  // batches that move values are remembered until they are done.
  // Whether peers read its values and gradients where this rank writes them.
  bool read_by_peers() const { return channel_.size() > 1 && !remote(); }
  bool remote() const { return channel_.transport().link() != nullptr && channel_.size() > 1; }
  Status hold_remote_values();
  void track(std::shared_ptr<Batch> batch) { exchanges_.push_back(std::move(batch)); }
  bool exchanging();
  const std::vector<std::shared_ptr<Batch>>& exchanges() const { return exchanges_; }
  // Makes this rank's part of the next version visible. `frozen_too`: an update wrote it, not a
  // step.
  Status publish(bool frozen_too);

  // Whether nobody reads the bucket of a reduction any more, and who still may.
  bool bucket_read(uint64_t reduction) const;
  std::vector<int> bucket_readers(uint64_t reduction) const;

  // Gradient; see gradient.h for how the bucket is filled.
  GradientState gradient_state() const { return gradient_state_; }
  Status enter(GradientState state);
  uint64_t reductions = 0;  // begun so far: the value that `contributed` was last set to
  std::vector<bool> fresh;  // per param: nothing of this accumulation is in its bucket yet
  GradientRing::Bucket* bucket = nullptr;  // where gradients are sharded, while filling or reducing
  std::weak_ptr<Operation> reduction;      // the last one begun
  std::weak_ptr<Operation> finish;         // the last end of an accumulation begun
  bool at_boundary = false;                // it ends the accumulation
  bool finishing = false;                  // a FinishOperation is to end the accumulation
  bool sum_started = false;                // the sum holds earlier micro-batches
  kernels::ExactSum squares;               // of this rank's part of a complete sum, if
  bool squares_known = false;  // the reduction took them: it does where an optimizer will ask
  bool has_optimizer = false;
  bool stepping = false;  // a step has begun and not ended: values and gradient are its own

 private:
  Unit(Rank& rank, Channel& channel, std::string name, std::vector<std::shared_ptr<Param>> params);
  // Gives back what a creation that failed had taken.
  void undo();
  Status reserve_values();
  Status reserve_gradients();
  void drop_remote_values();
  Result<std::byte*> allocate(uint64_t bytes, MemoryKind kind, const char* what,
                              uint64_t* offset = nullptr);

  Rank& rank_;
  Channel& channel_;
  std::string name_;
  uint64_t name_hash_;
  std::vector<std::shared_ptr<Param>> params_;
  std::vector<Flat> flats_;
  std::vector<Buffer> buffers_;                              // in the arena
  std::vector<std::pair<uint64_t, uint64_t>> window_parts_;  // in the window: offset, bytes
  std::vector<std::shared_ptr<Batch>> exchanges_;
  bool holds_remote_ = false;
  UnitSlot* slots_ = nullptr;
  uint64_t bytes_ = 0;

  ValueState state_ = ValueState::partitioned;
  GradientState gradient_state_ = GradientState::empty;
  uint64_t version_ = 0;
  uint32_t leases_ = 0;
};

// The part of `param` within `range` of its flat, in elements of the param.
Range part_of(const Param& param, const Range& range);

}  // namespace meron
