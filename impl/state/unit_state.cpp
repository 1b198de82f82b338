// SPDX-License-Identifier: Apache-2.0
#include "state/unit_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gradient/gradient.h"
#include "kernels/cpu/accumulate.h"
#include "quant/wire.h"

namespace meron {
namespace {

// Elements of states that pass through f32 at a time.
constexpr uint64_t kPiece = 1024 * kBlock;

int index_of(const Optimizer& optimizer, StateKind kind) {
  if (kind == StateKind::master) return FlatStates::kMaster;
  return index_of(optimizer.options(), kind == StateKind::exp_avg ? OptimizerState::exp_avg
                                                                  : OptimizerState::exp_avg_sq);
}

}  // namespace

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::values:
      return "values";
    case StateKind::master:
      return "master";
    case StateKind::exp_avg:
      return "exp_avg";
    case StateKind::exp_avg_sq:
      return "exp_avg_sq";
    case StateKind::residual:
      return "residual";
  }
  return "unknown";
}

UnitState::UnitState(Unit& unit, const Optimizer* optimizer) : unit_(unit), optimizer_(optimizer) {
  for (size_t f = 0; f < unit.flats().size(); ++f) {
    const Flat& flat = unit.flats()[f];
    states_.push_back({f, StateKind::values, flat.desc.dtype});
    const FlatStates* const states = optimizer == nullptr ? nullptr : optimizer->states(unit, f);
    if (states != nullptr) {
      const StateShape& shape = states->shape();
      const DType dtype = shape.dtype == StateDType::bf16 ? DType::bf16 : DType::f32;
      if (shape.master) states_.push_back({f, StateKind::master, DType::f32});
      for (const StateKind kind : {StateKind::exp_avg, StateKind::exp_avg_sq}) {
        if (index_of(*optimizer, kind) >= 0) states_.push_back({f, kind, dtype});
      }
    }
    if (unit.gradient().memory().residual(f) != nullptr)
      states_.push_back({f, StateKind::residual, DType::f32});
  }
}

void UnitState::leave_out_residual() {
  std::erase_if(states_, [](const State& state) { return state.kind == StateKind::residual; });
}

Range UnitState::saved(const State& state, int member) const {
  const uint64_t elements = unit_.flats()[state.flat].desc.elements;
  const auto rank = static_cast<uint64_t>(member);
  const MeshShape& mesh = unit_.axes().mesh;
  return state.kind == StateKind::residual ? row_range(elements, rank, mesh)
                                           : part_range(elements, rank, mesh);
}

Range UnitState::loaded(const State& state) const {
  const Flat& flat = unit_.flats()[state.flat];
  return state.kind == StateKind::residual ? flat.row : flat.owned;
}

Range UnitState::loaded(const State& state, int member) const {
  const uint64_t elements = unit_.flats()[state.flat].desc.elements;
  const auto rank = static_cast<uint64_t>(member);
  const MeshShape& mesh = unit_.axes().mesh;
  return state.kind == StateKind::residual
             ? row_range(elements, rank, mesh)
             : held_range(unit_.rank().plan.optimizer, elements, rank, mesh);
}

State UnitState::exact(size_t flat) const {
  const Flat& of = unit_.flats()[flat];
  if (of.master == nullptr) return {flat, StateKind::values, of.desc.dtype};
  return {flat, StateKind::master, DType::f32};
}

std::vector<ParamSpan> UnitState::spans(const State& state, const Range& range) const {
  std::vector<ParamSpan> out;
  for (const auto& param : unit_.params()) {
    if (param->place.flat != state.flat) continue;
    const Range part = part_of(*param, range);
    if (part.size() == 0) continue;
    out.push_back(
        {param.get(), part.begin, part.size(), param->place.offset + part.begin - range.begin});
  }
  std::sort(out.begin(), out.end(),
            [](const ParamSpan& a, const ParamSpan& b) { return a.offset < b.offset; });
  return out;
}

FlatStates* UnitState::states_of(const State& state) const {
  return optimizer_ == nullptr ? nullptr : optimizer_->states(unit_, state.flat);
}

Status UnitState::check(const State& state, const Range& range) const {
  const Range all = loaded(state);
  if (range.begin < all.begin || range.end > all.end || range.begin > range.end) {
    return Error(MERON_E_INTERNAL,
                 fmt::format("elements {} to {} of the {} of unit '{}' are not this rank's",
                             range.begin, range.end, name_of(state.kind), unit_.name()),
                 "please report this defect");
  }
  // A hold keeps all of it as it is, whatever has begun meanwhile.
  if (unit_.held_for_save()) return Ok{};
  if (unit_.stepping) {
    return Error(MERON_E_STATE, fmt::format("unit '{}' is being updated by a step", unit_.name()),
                 "wait for the step first")
        .on(unit_.name());
  }
  const bool kept_by_optimizer =
      state.kind != StateKind::values && state.kind != StateKind::residual;
  return kept_by_optimizer && optimizer_ != nullptr ? optimizer_->check_idle() : Status(Ok{});
}

Status UnitState::read_values(Flat& flat, const Range& range, std::byte* out) const {
  const uint64_t size = size_of(flat.desc.dtype);
  if (flat.shard) {
    // The stored shard has the range `owned` if the flat is coded, else `rest`.
    const uint64_t origin = flat.coded() ? flat.owned.begin : flat.rest.begin;
    return flat.shard->read((range.begin - origin) * size, range.size() * size, out);
  }
  const Recess recess(range.size() >= kInlineElements);
  if (!flat.packed) {
    std::memcpy(out, flat.own(range.begin), range.size() * size);
    return Ok{};
  }
  // The shared segment has the decoded values only while they are gathered.
  std::vector<std::byte> whole(flat.rest.size() * size);
  const Wire wire(frozen_codec(), unit_.rank().threads);
  wire.decode(whole.data(), flat.desc.dtype, flat.encoded, flat.rest.size(), false);
  std::memcpy(out, whole.data() + (range.begin - flat.rest.begin) * size, range.size() * size);
  return Ok{};
}

Status UnitState::read(const State& state, const Range& range, std::byte* out) const {
  MERON_TRY(check(state, range));
  if (range.size() == 0) return Ok{};
  Flat& flat = unit_.flats()[state.flat];
  if (state.kind == StateKind::values) {
    if (unit_.state() == ValueState::updating && !unit_.held_for_save()) {
      return Error(MERON_E_STATE, fmt::format("unit '{}' is being updated", unit_.name()),
                   "publish the update first")
          .on(unit_.name());
    }
    return read_values(flat, range, out);
  }
  if (state.kind == StateKind::residual) {
    return unit_.gradient().memory().read_feedback(state.flat, range, out);
  }
  if (optimizer_ == nullptr) {
    return flat.master->get(range.begin, range.size(), reinterpret_cast<float*>(out));
  }
  FlatStates& states = *states_of(state);
  const int index = index_of(*optimizer_, state.kind);
  if (state.dtype == DType::f32) {
    if (const float* const place = states.in_place(index, range.begin, range.size())) {
      const Recess recess(range.size() >= kInlineElements);
      std::memcpy(out, place, range.size() * sizeof(float));
      return Ok{};
    }
    return states.read(index, range.begin, range.size(), reinterpret_cast<float*>(out));
  }
  std::vector<float> piece(std::min(kPiece, range.size()));
  for (uint64_t at = range.begin; at < range.end; at += piece.size()) {
    const uint64_t count = std::min<uint64_t>(piece.size(), range.end - at);
    MERON_TRY(states.read(index, at, count, piece.data()));
    kernels::convert(out + (at - range.begin) * size_of(state.dtype), kernel_type(state.dtype),
                     piece.data(), kernels::Type::f32, count);
  }
  return Ok{};
}

Status UnitState::write(const State& state, const Range& range, const std::byte* data) const {
  MERON_TRY(check(state, range));
  if (unit_.held_for_save()) {
    return Error(MERON_E_STATE, fmt::format("a save copies unit '{}'", unit_.name()),
                 "wait until the save has copied it")
        .on(unit_.name());
  }
  if (range.size() == 0) return Ok{};
  Flat& flat = unit_.flats()[state.flat];
  if (state.kind == StateKind::values) {
    if (unit_.state() != ValueState::updating) {
      return Error(MERON_E_STATE, fmt::format("unit '{}' is not open for writing", unit_.name()),
                   "begin an update of it, and wait for it, first")
          .on(unit_.name());
    }
    {
      const Recess recess(range.size() >= kInlineElements);
      std::memcpy(flat.own(range.begin), data, range.size() * size_of(state.dtype));
    }
    if (optimizer_ != nullptr || flat.master == nullptr) return Ok{};
    return flat.master->put(range.begin, data, state.dtype, range.size());
  }
  if (state.kind == StateKind::residual) {
    return unit_.gradient().memory().write_feedback(state.flat, range, data);
  }
  FlatStates& states = *states_of(state);
  const int index = index_of(*optimizer_, state.kind);
  if (state.dtype == DType::f32) {
    return states.write(index, range.begin, range.size(), reinterpret_cast<const float*>(data));
  }
  std::vector<float> piece(std::min(kPiece, range.size()));
  for (uint64_t at = range.begin; at < range.end; at += piece.size()) {
    const uint64_t count = std::min<uint64_t>(piece.size(), range.end - at);
    kernels::convert(piece.data(), kernels::Type::f32,
                     data + (at - range.begin) * size_of(state.dtype), kernel_type(state.dtype),
                     count);
    MERON_TRY(states.write(index, at, count, piece.data()));
  }
  return Ok{};
}

}  // namespace meron
