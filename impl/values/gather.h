// SPDX-License-Identifier: Apache-2.0
// A gather: units on their way to full, then leased. Where all who hold values share memory, these
// are full as soon as every owner has published the version; replicated values are made whole by
// copying the peers' parts once per version. Between nodes each rank first stages its share
// (import_from_nodes.h), and then waits until its local peers have. Where all that is wanted, and
// all that is held, lies on devices that are joined, these gather it themselves (DeviceGroup), and
// the host does not wait.
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

// Where one param goes in mode `copy` (memory of the arena) or `into` (the caller's).
struct GatherTarget {
  const Param* param = nullptr;
  std::byte* data = nullptr;
  Buffer buffer;           // mode `copy` only
  bool on_device = false;  // mode `into` only: `data` is memory of the rank's device
};

// A whole tensor, and whether it is in memory of the rank's device.
struct FullTensor {
  const std::byte* data = nullptr;
  bool on_device = false;
};

// Where a gather's view is wanted.
enum class GatherPlace : int32_t { device = 0, host = 1 };

class GatherOperation final : public Operation {
  struct Prepared {};  // only prepare() has one

 public:
  // Where the call is to be posted: between replicas only if one of the units has to be.
  static Channel& channel_for(const std::vector<std::shared_ptr<Unit>>& units);
  // Of units that the caller has checked, and whose call it will post to `channel`, which is
  // channel_for(). Takes what memory it will need for sure, of a copy and of the device:
  // MERON_E_NO_MEMORY, where there is none, comes before peers rely on this rank.
  static Result<std::shared_ptr<GatherOperation>> prepare(std::vector<std::shared_ptr<Unit>> units,
                                                          GatherMode mode,
                                                          std::vector<GatherTarget> targets,
                                                          Channel& channel,
                                                          GatherPlace place = GatherPlace::device);
  GatherOperation(Prepared by, std::vector<std::shared_ptr<Unit>> units, GatherMode mode,
                  std::vector<GatherTarget> targets, Channel& channel, GatherPlace place);
  // The call has been posted. Takes a lease on every unit.
  Status begin(uint64_t sequence, Deadline deadline);
  ~GatherOperation() override;

  Result<bool> advance() override;
  std::vector<int> missing() const override;
  std::string describe() const override;
  std::string waits_for_drive() const override;
  bool begins_alone() const override { return true; }

  GatherMode mode() const { return mode_; }
  // Whether devices gather the values themselves: the same on all ranks.
  bool by_devices() const { return by_devices_.has_value(); }
  // Where in the window whole values come, the first of them, of those that do; of all of them
  // `detail` gets a hash. Equal on all ranks too.
  std::optional<uint64_t> place_in_window(uint64_t* detail) const;
  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  // Where the whole tensor of a param is; null when it is not part of the gather.
  FullTensor tensor(const Param& param) const;

  // Whether it leaves anything in memory of the device.
  bool on_device() const { return view_on_device_ || targets_on_device_; }
  // Of one that has ended: what is asked of `stream` from now on waits until the device has it all.
  Status join(void* stream);
  // The streams that have joined.
  std::span<void* const> joined() const { return joined_; }
  // Whether somebody has waited for the device, or need not any more: nobody reads before it has
  // written.
  Result<bool> may_read() const;
  // Whether the device has it all; and whether memory of the host is read for it no more.
  Result<bool> settled() const;

  // Gives the leases back; once. `user`: a stream whose work so far may still use the view. While
  // it is running it does so itself, soon: the caller's memory is in use until then.
  Status release(std::optional<void*> user = {});
  bool released() const { return released_; }

 private:
  // A unit on its way. `local_peers`: what this rank stages is ready; its local peers' may not be.
  enum class Stage { begun, parts, rows, local_peers, whole };
  struct Item {
    Unit* unit = nullptr;  // of units_
    uint64_t version = 0;  // that is gathered
    uint64_t number = 0;   // of the unit's gathers
    bool between = false;  // replicas
    // Whether what this gather stages is used: an earlier one may be staging the same.
    bool leads_parts = false, leads_rows = false;
    Stage stage = Stage::begun;
    std::shared_ptr<Import> parts = nullptr, rows = nullptr;
  };

  Result<bool> move();
  Status release_now(std::optional<void*> user);
  // Whether the unit is whole.
  Result<bool> advance(Item& item);
  Result<bool> advance_replicated(Item& item);
  Result<bool> advance_staged(Item& item);
  Result<bool> staged_own(Unit& unit);
  // Whether the units before it have begun their exchange of the same stage: what all send then has
  // one tag, and is told apart by its order.
  bool in_turn(const Item& item) const;
  Status begin_parts(Item& item);
  Status begin_rows(Item& item);
  // Rows that replicas hold alike: what local ones have updated.
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
