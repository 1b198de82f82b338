// SPDX-License-Identifier: Apache-2.0
// Params and units: what they are, where their memory lies, and the words in the window through
// which the ranks see how far each is with a unit.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/result.h"
#include "call_log/channel.h"
#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/type.h"
#include "memory/arena.h"
#include "param/axes.h"
#include "param/device_values.h"
#include "param/master.h"
#include "param/rank.h"
#include "param/resident_values.h"
#include "param/states.h"
#include "param/stored_values.h"
#include "plan/unit_layout.h"
#include "quant/wire.h"

namespace meron {

class Download;
class ResidentGradient;

inline kernels::Type kernel_type(DType dtype) {
  return static_cast<kernels::Type>(static_cast<int32_t>(dtype));
}

struct Param {
  TensorDesc desc;
  uint64_t count = 0;  // elements
  const Axes* axes = nullptr;
  Unit* unit = nullptr;  // set once, when the unit is made
  TensorPlace place;     // in the unit's layout
};

// dtypes times (trainable, frozen)
inline constexpr size_t kMaxFlats = 6;

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
  // Where its buffers lie in its arena. The bucket's are set before `contributed` is, in turn for
  // odd and even reductions: a rank that is ahead fills the bucket of reduction r + 1 while a peer
  // may still read that of r, and cannot begin r + 2 before every peer has begun r + 1.
  std::array<std::atomic<uint64_t>, kMaxFlats> value_offset{};
  std::array<std::array<std::atomic<uint64_t>, kMaxFlats>, 2> bucket_offset{};
  std::array<std::atomic<uint64_t>, kMaxFlats> sum_offset{};
  std::array<std::atomic<uint64_t>, kMaxFlats> encoded_offset{};
  // Where, behind its bucket, a flat's row for the replicas lies: see Flat::exchange.
  std::array<std::array<std::atomic<uint64_t>, kMaxFlats>, 2> exchange_offset{};
  // What encoding lost, as the bits of a float: of values for odd and even versions, of gradients
  // for odd and even exchanges. Read by peers before they encode the next time.
  std::array<std::atomic<uint64_t>, 2> value_error{};
  std::array<std::atomic<uint64_t>, 2> gradient_error{};
};

// One dtype's worth of a unit on this rank.
struct Flat {
  FlatDesc desc;
  Range row;     // of the shard axis; see MeshShape of base/layout.h
  Range part;    // of the row: this rank's alone
  Range rest;    // what it holds of the values between gathers: part, row or everything
  Range owned;   // what it updates: part, row, or everything where the optimizer is replicated
  Range summed;  // what `sum` is of: contains `owned`

  // Values, whole, in the param dtype, as all ranks see them. Sharded: in the window, side by side
  // with the peers' parts; `values` is the read-only mapping. Replicated: a private copy, of which
  // peers read `owned`.
  const std::byte* values = nullptr;
  std::byte* writable = nullptr;  // the same memory; only `rest` (and what is staged) is written
  // Where values travel by a codec: the exact values of `owned`, which is `part`, and the encoded
  // ones. The window has what comes of decoding, also of this rank's own part.
  std::byte* exact = nullptr;
  std::byte* encoded = nullptr;
  // Frozen values that lie encoded at rest: `encoded` is all of `rest`. `stored`: values that lie
  // on nvme or on the device at rest. The window has both from a gather to its release only, and
  // while they change; `unpacked`: it has the packed ones now, or what has come of decoding
  // `stored` ones that are coded. `resident`: `stored`, where they lie on the device.
  bool packed = false;
  bool unpacked = false;
  std::unique_ptr<StoredValues> stored;
  ResidentValues* resident = nullptr;
  // Whether the encoded values of this version are how they differ from those of the one before:
  // the same on all ranks of the replica axis.
  bool difference = false;
  uint64_t version = 0;  // the last version in which this flat may have changed
  // Values that stay between gathers (whole ones, and see Unit::keeps_parts): the version that has
  // come from this host's ranks, and the one whose exchange between hosts has begun.
  uint64_t fetched = 0;
  uint64_t requested = 0;
  bool copied = false;         // its second copy is held
  uint64_t window_offset = 0;  // sharded values: where they begin in the window

  // Gradient. bucket: n elements of the gradient dtype, valid while filling and reducing
  // (persistent where gradients are whole). sum: f32, of `summed`.
  std::byte* bucket = nullptr;
  float* sum = nullptr;
  // Between replicas. exchange: behind the bucket and valid with it, 4 * row bytes for the sum of
  // the row, where gradients are cut over replicas; then, with a codec, the row encoded part by
  // part; then, where replicas need the whole row, this rank's part of the sum encoded. residual:
  // f32, of the row, what encoding has lost so far.
  std::byte* exchange = nullptr;
  float* residual = nullptr;

  // f32 values of `owned` where params have 16 bits and an optimizer holds them; else null.
  Master* master = nullptr;

  bool coded() const { return exact != nullptr; }
  // Where this rank's exact value of an element of `owned` is.
  std::byte* own(uint64_t element) {
    const uint64_t size = size_of(desc.dtype);
    return exact != nullptr ? exact + (element - owned.begin) * size : writable + element * size;
  }
  uint64_t value_bytes() const { return desc.elements * size_of(desc.dtype); }
};

// Its memory stays until the context closes, or until every rank has agreed to destroy the unit
// (unit_release.cpp): a peer may be a step behind, and read it after this rank has used it last.
class Unit : public std::enable_shared_from_this<Unit> {
 public:
  // Lays out the params and reserves memory by the plan. The caller has posted the call.
  static Result<std::shared_ptr<Unit>> create(Rank& rank, const Axes& axes, std::string name,
                                              std::vector<std::shared_ptr<Param>> params);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

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
  DType gradient_type(const Flat& flat) const {
    return gradient_dtype(rank_.plan, flat.desc.dtype);
  }

  UnitSlot& own_slot() { return slots_[axes_.index()]; }
  const UnitSlot& slot(int member) const { return slots_[member]; }
  // Whether the word of all of `members` (of the group) has come to `value`, and whose has not.
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
  // Members of the group, this rank among them, that share its memory and: read what it holds of
  // the values; see the same whole values; lie on its shard axis; on its replica axis.
  const std::vector<int>& readers() const { return readers_; }
  const std::vector<int>& local_peers() const { return local_peers_; }
  const std::vector<int>& local_shards() const { return local_shards_; }
  const std::vector<int>& local_replicas() const { return local_replicas_; }
  // Where members of the group are on another channel that they are in.
  std::vector<int> places(const Channel& channel, const std::vector<int>& members) const;

  // Values.
  ValueState state() const { return state_; }
  Status enter(ValueState state);  // MERON_E_INTERNAL for a transition that states.h forbids
  uint64_t version() const { return version_; }
  uint32_t leases() const { return leases_; }
  void lease() {
    ++leases_;
    releasing_local_peers_ = false;
  }
  Status unlease();
  // What waits until a device, or a local peer, reads its values no more: goes on with it.
  void settle();
  // The same for all units of the rank that settle() could not end with. May release the lock.
  static void settle_waiting(Rank& rank);
  // Its values on this rank's device; null where the rank has none.
  DeviceValues* on_device() const { return on_device_.get(); }
  // Takes a lease of these for whole values, whose copies DeviceValues::advance() then asks for.
  // MERON_E_NO_MEMORY: nothing has changed.
  Status lease_device();
  // Whether devices gather what lies on them themselves: one alone, or all of the group's ranks.
  bool joined_on_device() const { return channel().size() == 1 || axes_.devices != nullptr; }
  // Whether whole values lie on this rank's device: gathers there see them in place. Or else
  // whether they come together there by DeviceGroup.
  bool whole_on_device() const { return all_resident() && channel().size() == 1; }
  bool gathers_on_device() const { return all_resident() && axes_.devices != nullptr; }
  // Rows that replicas hold alike, of which each updates a part: the version whose other parts have
  // come, or were asked for, on the device. The same on all ranks.
  uint64_t rows_refreshed = kNothing;
  bool refreshes_rows() const {
    return axes_.replicas() && rank_.plan.param.sharding == Sharding::shard &&
           rank_.plan.optimizer.sharding == Sharding::world;
  }
  // Where the sums of its gradient lie on the device; null: on the host.
  ResidentGradient* resident_gradient() const { return resident_gradient_.get(); }
  // Whether the device updates its values.
  bool updated_on_device() const { return rank_.plan.optimizer.tier == Tier::device; }
  // MERON_E_STATE while a lease or an update stands against a new update.
  Status check_updatable() const;
  // Releases the present version: from here to publish(), peers may not rely on this rank's
  // reads. What is to stay of it must have come first, also where the gather was given up: it is
  // read where peers have encoded it, and is not sent again.
  Status release_version();
  // While a save copies its states this rank keeps the present version, so that no rank changes it:
  // release_version() takes effect when the hold ends. Gathers and gradients go on.
  void hold_for_save() { held_for_save_ = true; }
  void end_hold();
  bool held_for_save() const { return held_for_save_; }
  // Whether a reduction changes what is saved: what its codec loses is kept.
  bool keeps_feedback() const;
  bool keeps_feedback(size_t flat) const;
  // Whether nobody uses the present version any more: readers have released it, and what was sent
  // of it to other nodes has gone.
  bool all_released();
  std::vector<int> unreleased() const;

  // Whether peers read its values and gradients where this rank writes them.
  bool read_by_peers() const { return readers_.size() > 1; }

  // What gathers stage of remote ranks' values: see import.h. Versions of which parts of the row,
  // or other rows, are on their way or in place.
  static constexpr uint64_t kNothing = UINT64_MAX;
  uint64_t gathers = 0;  // begun so far
  uint64_t parts_asked = kNothing, parts_here = kNothing;
  uint64_t rows_asked = kNothing, rows_here = kNothing;
  // Whether gathers stage anything at all, on this rank or on a local peer.
  bool stages_values() const { return stages_values_; }
  // Whether the next gather is between replicas too: the same on all ranks.
  bool between_replicas() const;
  // The last version of which replicas have what the others own: the same on all ranks.
  uint64_t exchanged = kNothing;
  // Whether what came from other replicas stays when a gather ends: until the values change.
  bool keeps_parts() const;
  // Ranges of the window, offset and bytes, that this rank stages: parts of its row from remote
  // replicas, other rows; and what it holds packed or on nvme.
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
  struct Staged {
    Ranges parts, rows, own;
  };
  Staged staged() const;
  Ranges parts_of(const Flat& flat) const;
  // Takes memory for what is staged; gives it back when no local peer reads it any more.
  Status hold_staged();
  void drop_staged();
  // While it lives an operation releases the lock in the middle of its work on the values: others
  // leave them alone.
  class Busy {
   public:
    explicit Busy(Unit& unit) : unit_(unit) { ++unit_.busy_; }
    ~Busy() { --unit_.busy_; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Unit& unit_;
  };
  bool busy_with_values() const { return busy_ > 0; }
  void track(std::shared_ptr<Batch> batch) { exchanges_.push_back(std::move(batch)); }
  bool exchanging();
  // Its own values, where the window has them not yet: unpacks them, and reads them from where they
  // lie.
  // Never waits; whether they are there.
  Result<bool> stage_own();
  // Whether values of its own lie on nvme or on the device.
  bool stores() const { return stores_; }
  // The same for a change, once every rank has released the version: open_change() first, and then
  // they must not be written before changeable(). `step`: those of trainable flats that have a
  // master are about to be written, all of them, and the others stay as they are.
  Status open_change(bool step);
  Result<bool> changeable();
  // Whether one more unit may be opened where `open` are and are not published. No more than
  // Plan::param_buffers are then in memory, but for those that the trainer holds; one always may.
  bool may_change(size_t open) const;
  // Whether its own values must wait for memory to be read into: while other units are written to
  // the drive, at most Plan::param_buffers have memory. A gather that waits for this waits for
  // writes of this rank, never for a peer.
  bool lacks_buffer() const { return unit_being_stored_first() != nullptr; }
  // Waits for its own transfers, at most `timeout_ns`.
  void wait_for_drive(int64_t timeout_ns) const;
  // What of its own transfers is under way, for messages; empty: nothing.
  std::string drive_text() const;
  // Calls `use` once its own values are in memory: for a look at them outside operations. Waits for
  // the drive, at most the timeout.
  Status use_values(const std::function<void()>& use);
  // Makes this rank's part of the next version visible. `frozen_too`: an update wrote it, not a
  // step.
  Status publish(bool frozen_too);

  // Whether nobody reads the bucket of a reduction any more, and who still may. `between`: replicas
  // have read it too.
  bool bucket_read(uint64_t reduction, bool between) const;
  // Whether what replicas exchange lies elsewhere: the bucket is free once rows are summed.
  bool sums_leave_bucket() const;
  std::vector<int> bucket_readers(uint64_t reduction, bool between) const;

  // Where replicas exchange gradients. Whether they do in a reduction: see ReduceOperation.
  bool between = false;    // in the last one begun
  uint64_t exchanges = 0;  // begun so far
  // Codecs in use: those of the plan, or bf16 once the error was above the plan's limit.
  Codec value_codec, gradient_codec;
  // By which a flat's values of this version are encoded; and what decides stochastic rounding:
  // another one for each flat and version, the same on all ranks.
  Codec codec_of(const Flat& flat) const;
  uint64_t value_seed(const Flat& flat) const;
  double value_error = 0, gradient_error = 0;  // relative, of what this rank encoded last
  float value_worst = 0, gradient_worst = 0;   // worst block
  // Before values or gradients are encoded: falls back where any rank's last error demands it.
  void review_value_codec();
  void review_gradient_codec();
  Status drop_feedback();

  // Gradient; see gradient.h for how the bucket is filled.
  // Gives them their memory, which must be real before the state leaves `empty`. Within the
  // caller's turn; waits for no rank; may release the lock. MERON_E_NO_MEMORY: it may be called
  // again.
  Status provide_gradients();
  bool has_gradients() const { return promised_.empty(); }  // whether they have their memory
  GradientState gradient_state() const { return gradient_state_; }
  Status enter(GradientState state);
  uint64_t reductions = 0;  // begun so far: the value that `contributed` was last set to
  std::vector<bool> fresh;  // per param: nothing of this accumulation is in its bucket yet
  std::shared_ptr<Download> download;      // that the bucket still waits for
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

  // The end. What stands against it on this rank: MERON_E_STATE.
  Status check_destroyable() const;
  // Whether nothing of this rank uses memory of the unit, its own or a peer's, any more. Goes on
  // with what does.
  bool quiet();
  // No operation of this rank meets it from here on, and its params belong to no unit.
  void detach();
  // Gives everything back. Every rank has detached the unit.
  void release_memory();
  std::atomic<int> schedules{0};  // that it is in
  bool destroying = false;

 private:
  Unit(Rank& rank, const Axes& axes, std::string name, std::vector<std::shared_ptr<Param>> params);
  void find_peers();
  // Whether all of this version has come that stays and that a gather has been begun for.
  bool has_parts() const;
  void release_version_now();
  // Gives back what a creation that failed had taken.
  void undo();
  Status reserve_values();
  Status reserve_gradients();
  Status reserve_window(Flat& flat);
  Status prepare_device();
  bool all_resident() const;
  // Whether values or gradients reside on the device.
  bool is_resident() const;
  // Whether the device still copies its values on the host.
  bool copied_from() const;
  void settle_later();
  // Releases the memory of units whose values have been written; how many are still written.
  static size_t units_being_stored(Rank& rank);
  // The unit whose write it waits for; null: for none.
  const Unit* unit_being_stored_first() const;
  // Whether holding its own values counts against Plan::param_buffers.
  bool takes_buffer() const { return stores_ && rank_.plan.param.tier == Tier::nvme; }
  Status store_away(Flat& flat);
  bool busy() const;  // with transfers of its own values
  // Whether the device has done all work that was requested before the first call.
  bool streams_done();
  Status await_own();
  Result<bool> bring_own_while_busy();
  Status reserve_encoded(size_t index);
  bool follows() const;
  void encode_values(Flat& flat, kernels::QuantError* error);
  Status hold_copies();
  void drop_copies();
  Status hold(const Ranges& ranges, MemoryKind kind);
  void give_back(const Ranges& ranges, MemoryKind kind);
  // Whether parts go with the rest; and all that does. (Parts of rows that replicas hold alike
  // stay.)
  bool drops_parts() const;
  Ranges staged_ranges() const;
  Result<std::byte*> allocate(uint64_t bytes, MemoryKind kind, const char* what,
                              uint64_t* offset = nullptr);
  // The same for gradients; real from provide_gradients() on.
  Result<std::byte*> promise_gradient(uint64_t bytes, const char* what, uint64_t* offset);
  void pin_gradients();

  Rank& rank_;
  const Axes& axes_;
  std::string name_;
  uint64_t name_hash_;
  std::vector<std::shared_ptr<Param>> params_;
  std::vector<Flat> flats_;
  std::vector<Buffer> buffers_;                              // in the arena
  std::vector<Buffer> promised_;                             // of these, what is not real yet
  std::vector<std::pair<uint64_t, uint64_t>> window_parts_;  // in the window: offset, bytes
  Ranges window_ranges_;  // of it that the unit has, of all ranks
  std::vector<std::shared_ptr<Batch>> exchanges_;
  std::vector<int> readers_, local_peers_, local_shards_, local_replicas_;
  bool stages_values_ = false;
  bool stores_ = false;
  int busy_ = 0;
  bool step_opens_ = false;    // as open_change() was told
  bool holds_staged_ = false;  // memory of what is gone with the lease
  UnitSlot* slots_ = nullptr;
  uint64_t bytes_ = 0;

  ValueState state_ = ValueState::partitioned;
  GradientState gradient_state_ = GradientState::empty;
  uint64_t version_ = 0;
  uint32_t leases_ = 0;
  bool held_for_save_ = false;
  bool releasing_version_ = false;      // of this version, once its parts have come
  bool releasing_local_peers_ = false;  // once the device no longer reads what they staged
  std::unique_ptr<DeviceValues> on_device_;
  std::unique_ptr<ResidentGradient> resident_gradient_;
  std::vector<DeviceEvent> last_work_;  // on each of the engine's streams; see streams_done()
};

// The part of `param` within `range` of its flat, in elements of the param.
Range part_of(const Param& param, const Range& range);

}  // namespace meron
