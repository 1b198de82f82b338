// SPDX-License-Identifier: Apache-2.0
// The optimizer states of one flat, on the host and on nvme, or on the device: allocation, update,
// reading and writing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/update.h"
#include "memory/arena.h"
#include "offload/state_file.h"
#include "optim/cohorts.h"
#include "optim/device_states.h"
#include "optim/options.h"
#include "plan/state_layout.h"
#include "shard/master_access.h"
#include "unit/unit.h"

namespace meron {

// States in memory as seen from one element on.
struct StateView {
  float* master = nullptr;  // null: the values themselves
  kernels::States states;

  // From `elements`, a multiple of kBlock, further on.
  StateView from(uint64_t elements) const;
};

// An element whose value or state a step makes infinite.
struct Overflow {
  uint64_t element = 0;  // of the flat
  bool in_value = false;

  auto operator<=>(const Overflow&) const = default;
};

// The numbers of a step for each cohort; none for one that the step skips.
using CohortSteps = std::vector<std::optional<kernels::UpdateStep>>;

class FlatStates final : public MasterAccess {
 public:
  FlatStates(Unit& unit, size_t flat, const OptimizerOptions& options);
  // Memory for the states on the host, appended to `buffers`, or on the device.
  Status allocate(std::vector<Buffer>& buffers);
  // The states on nvme; no elements if there are none.
  StateFile::Region region() const;
  // `region` of `file` was made from region().
  void set_file(StateFile& file, size_t region) {
    file_ = &file;
    region_ = region;
  }
  // The states before the first step: zero, and the master as the values are.
  Status fill_memory();
  void fill(const StateFile::SubGroup& group, std::byte* records);

  Unit& unit() const { return unit_; }
  Flat& flat() const { return unit_.flats()[flat_]; }
  const StateShape& shape() const { return shape_; }
  const StateSplit& split() const { return split_; }
  std::vector<CohortRun> runs;

  // One step. `handed_over`: peers read the values next. Updates elements `range` of the states on
  // the host, which begins at a multiple of kBlock.
  void update_host(const CohortSteps& steps, bool handed_over, const Range& range);
  bool on_device() const { return split_.device.size() > 0; }
  // Enqueues the update of the states that reside on the device.
  Status update_on_device(const CohortSteps& steps);
  // Verifies, updates and seals. An overflow is an error: what was on nvme before is lost.
  Status update(const CohortSteps& steps, bool handed_over, const StateFile::SubGroup& group,
                std::byte* records);

  // True if the next step could make a value or a state infinite. A cheap test by bounds: no
  // gradient's magnitude is above `gradient`. False in all ordinary training.
  bool may_overflow(const std::vector<GroupOptions>& groups, double gradient) const;
  // The first element that the step would make infinite, by computing the step without storing it.
  // States that are not on the host count as zero, so only a gradient's own square is seen there.
  Result<std::optional<Overflow>> find_overflow(const CohortSteps& steps) const;

  // The first element of f16 that an earlier update on the device made infinite. Only the host's
  // updates are tried before they are stored.
  Result<std::optional<uint64_t>> find_held_overflow() const;

  // `count` elements from `first` of the flat, which this rank owns, as f32. `state`: the index of
  // a state, or kMaster. They wait for the drive or the device; no step may run meanwhile.
  static constexpr int kMaster = DeviceStates::kMaster;
  Status read(int state, uint64_t first, uint64_t count, float* out);
  Status write(int state, uint64_t first, uint64_t count, const float* values);
  // Their address, if they are on the host and in f32; else null.
  float* in_place(int state, uint64_t first, uint64_t count);
  // The read-only address of a master that is the f32 values themselves.
  const float* readable_master(uint64_t first) const;

  Status put(uint64_t first, const std::byte* values, DType dtype, uint64_t count) override;
  Status get(uint64_t first, uint64_t count, float* out) override {
    return read(kMaster, first, count, out);
  }
  bool parked() const override { return parked_; }
  // The states on the host have been offloaded and their buffers released; allocate() takes memory
  // again.
  void park();

 private:
  // Of a record, or of the states on the host: `elements` in all.
  StateView view_of(std::byte* record, uint64_t elements) const;
  StateView host_view() const;
  uint64_t seed(uint64_t step_seed) const;
  // The largest magnitudes that can be stored.
  kernels::Largest limits() const;
  void note_values(const float* values, uint64_t count);
  // Of a record on nvme whose update has made a number infinite.
  Error overflow_error(const StateView& view, uint64_t first, uint64_t count) const;
  // Of elements [begin, end) of the flat, whose states `view` shows from `begin` on.
  kernels::Largest update_range(const CohortSteps& steps, bool handed_over, const StateView& view,
                                uint64_t begin, uint64_t end);
  struct Piece;
  template <class Body>
  Status for_pieces(int state, uint64_t first, uint64_t count, bool write, Body body);
  template <class Body>
  Status for_pieces_on_device(int state, uint64_t first, uint64_t count, bool write, Body body);
  template <class Change>
  void for_blocks(const Piece& piece, uint32_t state, bool write, Change change);

  Unit& unit_;
  const size_t flat_;
  const UpdateRule rule_;
  StateShape shape_;
  StateSplit split_;
  std::array<std::byte*, kMaxStates> host_states_{};  // codes, then scales
  float* host_master_ = nullptr;
  std::unique_ptr<DeviceStates> device_;  // null: not on the device
  bool parked_ = false;
  // On the host and on nvme, as the last step or the last writes left them.
  kernels::Largest largest_;
  StateFile* file_ = nullptr;
  size_t region_ = 0;
};

}  // namespace meron
