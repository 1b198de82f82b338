// SPDX-License-Identifier: Apache-2.0
// A unit on this rank: the versions and the life of its values, and memory for them. What it is has
// shape.h; its gradient is gradient/gradient.h.
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

// Which version's values, of those that other ranks update, are here or were asked for.
struct UnitArrivals {
  static constexpr uint64_t kNothing = UINT64_MAX;
  // What gathers stage of remote ranks' values (values/import_from_nodes.h): parts of this rank's
  // row, and other rows.
  uint64_t parts_asked = kNothing, parts_here = kNothing;
  uint64_t rows_asked = kNothing, rows_here = kNothing;
  // Of which replicas have what the others own: the same on all ranks.
  uint64_t exchanged = kNothing;
  // Rows that replicas hold alike, of which each updates a part: of which the other parts have
  // come, or were asked for, on the device. The same on all ranks.
  uint64_t rows_refreshed = kNothing;
};

// How a unit's values are encoded where they travel by a codec.
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
  // What waits until a device, or a local peer, reads its values no more: goes on with it.
  void settle();
  // The same for all units of the rank that settle() could not end with. May release the lock.
  static void settle_waiting(Rank& rank);
  // Its values on this rank's device; null where the rank has none.
  GatheredOnDevice* on_device() const { return on_device_.get(); }
  // Takes a lease of these for whole values, whose copies GatheredOnDevice::advance() then asks
  // for. MERON_E_NO_MEMORY: nothing has changed.
  Status lease_device();
  // Whether devices gather what lies on them themselves: one alone, or all of the group's ranks.
  bool joined_on_device() const { return channel().size() == 1 || axes_.devices != nullptr; }
  // Whether whole values lie on this rank's device: gathers there see them in place. Or else
  // whether they come together there by DeviceGroup.
  bool whole_on_device() const { return all_on_device() && channel().size() == 1; }
  bool gathers_on_device() const { return all_on_device() && axes_.devices != nullptr; }
  // Whether replicas hold rows alike, of which each updates a part.
  bool refreshes_rows() const {
    return axes_.replicas() && rank_.plan.param.sharding == Sharding::shard &&
           rank_.plan.optimizer.sharding == Sharding::world;
  }
  // Whether its gradient lies on the device. Ranks whose devices are not joined exchange by the
  // host, which the device then reads.
  bool sums_on_device() const {
    return rank_.plan.gradient.tier == Tier::device && joined_on_device() && trainable();
  }
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
  void hold_for_save() { releasing_.held_for_save = true; }
  void end_hold();
  bool held_for_save() const { return releasing_.held_for_save; }
  // Whether nobody uses the present version any more: readers have released it, and what was sent
  // of it to other nodes has gone.
  bool all_released();
  std::vector<int> unreleased() const;

  uint64_t gathers = 0;  // begun so far
  UnitArrivals arrivals;
  // Whether the next gather is between replicas too: the same on all ranks.
  bool between_replicas() const;
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

  UnitEncoding encoding;
  // By which a flat's values of this version are encoded; and what decides stochastic rounding:
  // another one for each flat and version, the same on all ranks.
  Codec codec_of(const Flat& flat) const;
  uint64_t value_seed(const Flat& flat) const;
  // Before values are encoded: falls back where any rank's last error demands it.
  void review_value_codec();
  void attach(std::shared_ptr<Gradient> gradient) { gradient_ = std::move(gradient); }
  Gradient& gradient() const { return *gradient_; }
  bool has_optimizer = false;
  bool stepping = false;  // a step has begun and not ended: values and gradient are its own

  // Gives back what creating it has taken; nobody has used it.
  void undo();

  // The end. What stands against it on this rank, its gradient aside: MERON_E_STATE.
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
  // Whether all of this version has come that stays and that a gather has been begun for.
  bool has_parts() const;
  void release_version_now();
  Status reserve_values();
  Status reserve_window(Flat& flat);
  Status prepare_device();
  bool all_on_device() const;
  // Whether values or gradients reside on the device.
  bool uses_device() const;
  // Whether the device still copies its values on the host.
  bool copied_from() const;
  void settle_later();
  // Releases the memory of units whose values have been written; how many are still written.
  static size_t units_being_stored(Rank& rank);
  // The unit whose write it waits for; null: for none.
  const Unit* unit_being_stored_first() const;
  // Whether holding its own values counts against Plan::param_buffers.
  bool takes_buffer() const { return stores() && rank_.plan.param.tier == Tier::nvme; }
  Status store_away(Flat& flat);
  bool busy() const;  // with transfers of its own values
  // Whether the device has done all work that was requested before the first call.
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
  // Whether parts go with the rest; and all that does. (Parts of rows that replicas hold alike
  // stay.)
  bool drops_parts() const;
  Ranges staged_ranges() const;
  Result<std::byte*> allocate(uint64_t bytes, MemoryKind kind, const char* what,
                              uint64_t* offset = nullptr);

  // What creating it has taken.
  struct Memory {
    std::vector<Buffer> buffers;  // in the arena
    Ranges held;                  // in the window
    Ranges all;                   // the same of all ranks
  };
  Memory memory_;
  std::vector<std::shared_ptr<Batch>> exchanges_;
  int busy_ = 0;
  bool step_opens_ = false;    // as open_change() was told
  bool holds_staged_ = false;  // memory of what is gone with the lease

  ValueState state_ = ValueState::partitioned;
  uint64_t version_ = 0;
  uint32_t leases_ = 0;
  // Why a release of this version has to wait.
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
