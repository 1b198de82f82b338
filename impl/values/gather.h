// SPDX-License-Identifier: Apache-2.0
// A gather: units become full, then leased. If all ranks that hold values share memory, the values
// are full as soon as every owner has published the version. A replicated unit copies the peers'
// parts once per version. Between nodes each rank first stages its share (import_from_nodes.h), and
// then waits for its local peers' shares. If source and destination are both on joined devices, the
// devices run the gather (DeviceGroup), and the host does not wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/operation.h"
#include "device/upload.h"
#include "unit/unit.h"
#include "values/gather_by_devices.h"
#include "values/import_from_nodes.h"

namespace meron {

enum class GatherMode : int32_t { view = 0, copy = 1, into = 2 };

// Destination of a param or of a whole flat, in mode `copy` (memory of the arena) or `into` (the
// caller's).
struct GatherTarget {
  Unit* unit = nullptr;
  size_t flat = 0;
  Range elements;                // of the flat
  const Param* param = nullptr;  // null: the whole flat
  std::byte* data = nullptr;
  Buffer buffer;           // mode `copy` only
  bool on_device = false;  // mode `into` only: `data` is memory of the rank's device

  static GatherTarget of_param(const Param& param);
  static GatherTarget of_flat(Unit& unit, size_t flat);
  uint64_t bytes() const;
  // True if the param is written there.
  bool has(const Param& other) const;
};

// A full tensor; `on_device`: in memory of the rank's device.
struct FullTensor {
  const std::byte* data = nullptr;
  bool on_device = false;
};

// Tier of a gather's view.
enum class ViewTier : int32_t { device = 0, host = 1 };

class GatherOperation final : public Operation {
  struct Prepared {};  // only prepare() has one

 public:
  // Channel to post the call to: one between replicas only if a unit needs it.
  static Channel& channel_for(const std::vector<std::shared_ptr<Unit>>& units);
  // The caller has checked the units, and will post the call to `channel`, which is channel_for().
  // Takes the memory that it certainly needs, for copies and on the device. So MERON_E_NO_MEMORY
  // occurs before peers rely on this rank.
  static Result<std::shared_ptr<GatherOperation>> prepare(std::vector<std::shared_ptr<Unit>> units,
                                                          GatherMode mode,
                                                          std::vector<GatherTarget> targets,
                                                          Channel& channel,
                                                          ViewTier tier = ViewTier::device);
  GatherOperation(Prepared by, std::vector<std::shared_ptr<Unit>> units, GatherMode mode,
                  std::vector<GatherTarget> targets, Channel& channel, ViewTier tier);
  // The call has been posted. Takes a lease on every unit.
  Status begin(uint64_t sequence, Deadline deadline);
  ~GatherOperation() override;

  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override;
  std::string waits_for_drive() const override;
  bool begins_alone() const override { return true; }

  GatherMode mode() const { return mode_; }
  // True if devices gather the values themselves: the same on all ranks.
  bool by_devices() const { return by_devices_.has_value(); }
  // Offset in the GatherWindow of the first full values there, if any. Sets `detail` to a hash of
  // all offsets. Equal on all ranks too.
  std::optional<uint64_t> place_in_window(uint64_t* detail) const;
  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  // The full tensor of a param; null if it is not part of the gather.
  FullTensor tensor(const Param& param) const;

  // True if it writes to memory of the device.
  bool on_device() const { return view_on_device_ || targets_on_device_; }
  // The gather has ended. Work queued on `stream` from now on waits until the device has it all.
  Status join(void* stream);
  // The streams that have joined.
  std::span<void* const> joined() const { return joined_; }
  // True if a caller has waited for the device, or does not need to. Before that, reads would
  // precede the device's writes.
  Result<bool> may_read() const;
  // True once the device has it all and no longer reads the host's memory.
  Result<bool> settled() const;

  // Releases the leases; once. `user`: a stream whose queued work may still use the view. A running
  // gather releases them itself soon: until then it uses the caller's memory.
  Status release(std::optional<void*> user = {});
  bool released() const { return released_; }

 private:
  // Stages of a unit. `local_peers`: this rank has staged its share; its local peers may not have.
  enum class Stage { begun, parts, rows, local_peers, whole };
  struct Item {
    Unit* unit = nullptr;  // of units_
    uint64_t version = 0;  // that is gathered
    uint64_t number = 0;   // of the unit's gathers
    bool between = false;  // replicas
    // False if an earlier gather stages the same values.
    bool leads_parts = false, leads_rows = false;
    Stage stage = Stage::begun;
    std::shared_ptr<Import> parts = nullptr, rows = nullptr;
  };

  Result<bool> move();
  Status release_now(std::optional<void*> user);
  // True once the unit is full.
  Result<bool> advance(Item& item);
  Result<bool> advance_replicated(Item& item);
  Result<bool> advance_staged(Item& item);
  Result<bool> staged_own(Unit& unit);
  // True once the units before it have begun their exchange of this stage. All exchanges of a stage
  // share a tag, so their order identifies them.
  bool in_turn(const Item& item) const;
  Status begin_parts(Item& item);
  Status begin_rows(Item& item);
  // If replicas hold the same rows: copies the parts that local replicas have updated.
  void refresh(Unit& unit);
  void copy_from_holders(Unit& unit);
  Result<bool> arrived(const std::shared_ptr<Import>& import);
  Result<bool> copy_targets();
  Status ask_for_copies();
  void copy_to_caller(Rank& rank, std::byte* to, const std::byte* from, uint64_t bytes) const;
  Status note_copies();
  Result<bool> lease_device();
  Status begin_on_devices();
  void count(Unit& unit) const;

  std::vector<std::shared_ptr<Unit>> units_;
  std::vector<Item> items_;  // one per unit
  GatherMode mode_;
  std::vector<GatherTarget> targets_;
  bool view_on_device_ = false, targets_on_device_ = false;
  bool only_on_device_ = false;  // the host sees nothing of it
  std::optional<GatherByDevices> by_devices_;
  std::unique_ptr<Upload> upload_;  // to targets, from values that are not pinned
  bool asked_ = false;              // for copies to targets
  std::vector<void*> joined_;       // streams that wait for the device
  size_t device_leases_ = 0;  // units, from the first on, whose values on the device are leased
  bool released_ = false;
  std::atomic<bool> given_up_{false};  // by release(), while it was running; with the stream
  std::optional<void*> given_up_stream_;
};

}  // namespace meron
