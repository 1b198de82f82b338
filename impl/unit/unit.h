// SPDX-License-Identifier: Apache-2.0
// A unit on this rank: the versions and states of its values, and their memory. shape.h describes
// the unit, and gradient/gradient.h its gradient.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quant/wire.h"
#include "unit/gathered_on_device.h"
#include "unit/shape.h"
#include "unit/states.h"

namespace meron {

class Gradient;

// Versions of values updated by other ranks that have arrived here or were requested.
struct UnitArrivals {
  static constexpr uint64_t kNothing = UINT64_MAX;
  // Staged from remote ranks by gathers (values/import_from_nodes.h): parts of this rank's row, and
  // other rows.
  uint64_t parts_asked = kNothing, parts_here = kNothing;
  uint64_t rows_asked = kNothing, rows_here = kNothing;
  // Version that replicas have exchanged: the same on all ranks.
  uint64_t exchanged = kNothing;
  // If replicas hold a row together and each updates a part of it: the version of the other parts
  // that was requested on the device. The same on all ranks.
  uint64_t rows_refreshed = kNothing;
};

// Encoding of a unit's values that travel by a codec.
struct UnitEncoding {
  Codec codec;       // the plan's, or bf16 once the error was above the plan's limit
  double error = 0;  // relative, of what this rank encoded last
  float worst = 0;   // worst block
};

// Its memory stays until the context closes, or until every rank has agreed to destroy the unit
// (unit_release.cpp): a peer may be a step behind, and read it after this rank has used it last.
class Unit final : public UnitShape, public std::enable_shared_from_this<Unit> {
 public:
  // Lays out the params and reserves memory by the plan. The caller has posted the call.
  static Result<std::shared_ptr<Unit>> create(Rank& rank, const Axes& axes, std::string name,
                                              std::vector<std::shared_ptr<Param>> params);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Values.
  ValueState state() const { return state_; }
  Status enter(ValueState state);  // MERON_E_INTERNAL for a transition that states.h forbids
  uint64_t version() const { return version_; }
  uint32_t leases() const { return leases_; }
  void lease() {
    ++leases_;
    releasing_.local_peers = false;
  }
  Status unlease();
  // Releases what it could not release before, if a device or a local peer no longer reads the
  // values.
  void settle();
  // The same for all units of the rank whose settle() must be repeated. May release the lock.
  static void settle_waiting(Rank& rank);
  // Its values on this rank's device; null if the rank has none.
  GatheredOnDevice* on_device() const { return on_device_.get(); }
  // Takes a lease of these for full values. GatheredOnDevice::advance() queues the copies.
  // MERON_E_NO_MEMORY: nothing has changed.
  Status lease_device();
  // True if devices gather their values themselves: a single one, or those of all ranks.
  bool joined_on_device() const { return channel().size() == 1 || axes_.devices != nullptr; }
  // True if the full values are on this rank's device, where gathers see them in place. The next
  // one: true if DeviceGroup gathers them there.
  bool whole_on_device() const { return all_on_device() && channel().size() == 1; }
  bool gathers_on_device() const { return all_on_device() && axes_.devices != nullptr; }
  // True if replicas hold the same rows, and each updates a part of them.
  bool refreshes_rows() const {
    return axes_.replicas() && rank_.plan.param.sharding == Sharding::shard &&
           rank_.plan.optimizer.sharding == Sharding::world;
  }
  // True if its gradient is on the device. Ranks whose devices are not joined reduce on the host,
  // and the device then reads the result.
  bool sums_on_device() const {
    return rank_.plan.gradient.tier == Tier::device && joined_on_device() && trainable();
  }
  // True if the device updates its values.
  bool updated_on_device() const { return rank_.plan.optimizer.tier == Tier::device; }
  // MERON_E_STATE if a lease or an update prevents a new update.
  Status check_updatable() const;
  // Releases the present version: until publish(), peers do not count on reads of this rank. Parts
  // that the rank keeps must have arrived first, even if the gather was cancelled, because they are
  // not sent again.
  Status release_version();
  // While a save copies its states this rank keeps the present version, so that no rank changes it:
  // release_version() takes effect when the hold ends. Gathers and gradients continue.
  void hold_for_save() { releasing_.held_for_save = true; }
  void end_hold();
  bool held_for_save() const { return releasing_.held_for_save; }
  // True once the present version is unused: its readers have released it, and all its sends to
  // other nodes are complete.
  bool all_released();
  std::vector<int> unreleased() const;

  uint64_t gathers = 0;  // begun so far
  UnitArrivals arrivals;
  // True if the next gather is also between replicas: the same on all ranks.
  bool between_replicas() const;
  // True if parts received from other replicas are kept after a gather, until the values change.
  bool keeps_parts() const;
  // Ranges of the window, offset and bytes, that this rank stages: parts of its row from remote
  // replicas, other rows; and what it holds packed or on nvme.
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
  struct Staged {
    Ranges parts, rows, own;
  };
  Staged staged() const;
  Ranges parts_of(const Flat& flat) const;
  // Allocates memory for staged values, and releases it once no local peer reads them.
  Status hold_staged();
  void drop_staged();
  // While it lives, an operation may release the lock in the middle of its work on the values.
  // Other operations do not touch them.
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
  // Unpacks or reads its own values into the shared segment if they are not there yet. Never waits.
  // Returns true once they are there.
  Result<bool> stage_own();
  // The same for a change, once every rank has released the version. Call open_change() first, then
  // changeable() until it returns true. `step`: the change writes all values of the trainable flats
  // that have a master, and no others.
  Status open_change(bool step);
  Result<bool> changeable();
  // True if one more unit may be opened while `open` ones are not yet published. So at most
  // Plan::param_buffers are in memory, besides those that the trainer holds. One always may.
  bool may_change(size_t open) const;
  // True if its own values must wait for memory to be read into: while other units are written to
  // the drive, at most Plan::param_buffers have memory. A gather that waits for this waits for
  // writes of this rank, never for a peer.
  bool lacks_buffer() const { return unit_being_stored_first() != nullptr; }
  // Waits for its own transfers, at most `timeout_ns`.
  void wait_for_drive(int64_t timeout_ns) const;
  // Describes its own transfers under way, for messages; empty if there are none.
  std::string drive_text() const;
  // Calls `use` once its own values are in memory, to read them outside operations. Waits for the
  // drive, at most the timeout.
  Status use_values(const std::function<void()>& use);
  // Makes this rank's part of the next version visible. `frozen_too`: an update wrote it, not a
  // step.
  Status publish(bool frozen_too);

  UnitEncoding encoding;
  // Codec of a flat's values of this version. The seed is for stochastic rounding: it differs
  // between flats and versions, and is the same on all ranks.
  Codec codec_of(const Flat& flat) const;
  uint64_t value_seed(const Flat& flat) const;
  // Before values are encoded: falls back to bf16 if any rank's last error demands it.
  void review_value_codec();
  void attach(std::shared_ptr<Gradient> gradient) { gradient_ = std::move(gradient); }
  Gradient& gradient() const { return *gradient_; }
  bool has_optimizer = false;
  bool stepping = false;  // a step has begun and not ended: values and gradient are its own

  // Releases all that its creation took. The unit has never been used.
  void undo();

  // The end. MERON_E_STATE if something on this rank, except its gradient, prevents it.
  Status check_destroyable() const;
  // True once nothing of this rank uses memory of the unit, its own or a peer's. Advances what
  // still does.
  bool quiet();
  // No operation of this rank meets it from here on, and its params belong to no unit.
  void detach();
  // Releases all its memory. Every rank has detached the unit.
  void release_memory();
  std::atomic<int> schedules{0};  // that it is in
  bool destroying = false;

 private:
  Unit(Rank& rank, const Axes& axes, std::string name, std::vector<std::shared_ptr<Param>> params);
  // True if all kept parts of this version that were requested have arrived.
  bool has_parts() const;
  void release_version_now();
  Status reserve_values();
  Status reserve_window(Flat& flat);
  Status prepare_device();
  bool all_on_device() const;
  // True if values or gradients reside on the device.
  bool uses_device() const;
  // True while the device copies its values on the host.
  bool copied_from() const;
  void settle_later();
  // Releases the memory of units whose values have been written; how many are still written.
  static size_t units_being_stored(Rank& rank);
  // The unit whose write it waits for; null if it waits for none.
  const Unit* unit_being_stored_first() const;
  // True if holding its own values counts against Plan::param_buffers.
  bool takes_buffer() const { return stores() && rank_.plan.param.tier == Tier::nvme; }
  Status store_away(Flat& flat);
  bool busy() const;  // with transfers of its own values
  // True once the device has done all work that was requested before the first call.
  bool streams_done();
  Status await_own();
  Result<bool> bring_own_while_busy();
  Status reserve_encoded(size_t index);
  bool follows() const;
  void encode_values(Flat& flat, kernels::QuantError* error);
  Status hold_secondary();
  void drop_secondary();
  Status hold(const Ranges& ranges, MemoryKind kind);
  void give_back(const Ranges& ranges, MemoryKind kind);
  // True if parts are released with the rest of the staged values. Parts of rows that replicas hold
  // alike stay. staged_ranges(): all ranges that are released so.
  bool drops_parts() const;
  Ranges staged_ranges() const;
  Result<std::byte*> allocate(uint64_t bytes, MemoryKind kind, const char* what,
                              uint64_t* offset = nullptr);

  // Memory that its creation took.
  struct Memory {
    std::vector<Buffer> buffers;  // in the arena
    Ranges held;                  // in the window
    Ranges all;                   // the same of all ranks
  };
  Memory memory_;
  std::vector<std::shared_ptr<Batch>> exchanges_;
  int busy_ = 0;
  bool step_opens_ = false;    // argument of open_change()
  bool holds_staged_ = false;  // memory of staged values, until the lease is released

  ValueState state_ = ValueState::partitioned;
  uint64_t version_ = 0;
  uint32_t leases_ = 0;
  // Reasons for which a release of this version has to wait.
  struct Releasing {
    bool held_for_save = false;  // a save copies its states
    bool version = false;        // once its parts have come
    bool local_peers = false;    // once the device no longer reads what they staged
  };
  Releasing releasing_;
  std::unique_ptr<GatheredOnDevice> on_device_;
  std::vector<DeviceEvent> last_work_;  // on each of the engine's streams; see streams_done()
  std::shared_ptr<Gradient> gradient_;  // goes first
};

// "unit 'x' cannot go from a to b", a defect of the engine.
Error forbidden_transition(const std::string& unit, std::string_view from, std::string_view to);

}  // namespace meron
