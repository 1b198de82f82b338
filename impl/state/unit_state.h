// SPDX-License-Identifier: Apache-2.0
// What a unit and its optimizer hold on this rank, as ranges of flats: the seam on which saving,
// loading and inspection stand. Ranges are elements of the flat, as in base/layout.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/layout.h"
#include "base/result.h"
#include "optim/optimizer.h"
#include "unit/unit.h"

namespace meron {

enum class StateKind : uint8_t {
  values,      // exact ones, as an update writes them
  master,      // f32 values of 16-bit params
  exp_avg,     // see OptimizerState
  exp_avg_sq,  // see OptimizerState
  residual,    // what a codec with feedback has lost of the gradient: each replica has its own
};
std::string_view name_of(StateKind kind);

// One kind of state of one flat.
struct State {
  size_t flat = 0;
  StateKind kind = StateKind::values;
  DType dtype = DType::f32;  // of the bytes that read() gives and write() takes: loses nothing

  bool operator==(const State&) const = default;
};

// A param's part of a range of a flat.
struct ParamSpan {
  const Param* param = nullptr;
  uint64_t first = 0;  // element of the param
  uint64_t count = 0;
  uint64_t offset = 0;  // from the begin of the range, in elements; spans have padding between them
};

class UnitState {
 public:
  // `optimizer`: the unit's, or null: then its states are not looked at.
  UnitState(Unit& unit, const Optimizer* optimizer);

  Unit& unit() const { return unit_; }
  // By flat, and in each by kind.
  std::span<const State> states() const { return states_; }
  // From now on states() has no residual.
  void leave_out_residual();

  // The range that this rank contributes to a save. Together the ranks contribute each element
  // once. Each replica has its own residual, for its full shard, and contributes all of it.
  Range saved(const State& state) const { return saved(state, unit_.channel().index()); }
  Range saved(const State& state, int member) const;
  // The range that this rank must load to restore its own elements.
  Range loaded(const State& state) const;
  Range loaded(const State& state, int member) const;
  // The most exact values of a flat, for read(): its master, even if the optimizer was not given;
  // if it has no master, its values.
  State exact(size_t flat) const;
  // The params in a range, ascending.
  std::vector<ParamSpan> spans(const State& state, const Range& range) const;

  // Copies `range`, within loaded(), to `out`: range.size() elements of state.dtype; what pads
  // tensors is undefined. Waits for the drive or the device. Not while the unit is being updated or
  // its optimizer steps, but for a unit that is held for a save: MERON_E_STATE. Also MERON_E_STATE
  // (states are offloaded), MERON_E_IO, MERON_E_CORRUPT, MERON_E_TIMEOUT, MERON_E_DEVICE.
  Status read(const State& state, const Range& range, std::byte* out) const;
  // Replaces `range`. Values: only while an update of the unit is open; without an optimizer their
  // master follows, if there is one. States of 8 bits are encoded by blocks of kBlock elements:
  // ranges that begin and end at multiples of it (or at the end of loaded()) keep the bits that
  // were read. Errors as read().
  Status write(const State& state, const Range& range, const std::byte* data) const;

 private:
  Status check(const State& state, const Range& range) const;
  Status read_values(Flat& flat, const Range& range, std::byte* out) const;
  FlatStates* states_of(const State& state) const;

  Unit& unit_;
  const Optimizer* optimizer_;
  std::vector<State> states_;
};

}  // namespace meron
