// SPDX-License-Identifier: Apache-2.0
// A rank's part of an optimizer's state of one param, copied out and in through the seam of all
// states (state/unit_state.h).
#include <fmt/format.h>

#include <utility>

#include "engine/context.h"
#include "state/unit_state.h"

namespace meron {
namespace {

StateKind kind_of(OptimizerState which) {
  switch (which) {
    case OptimizerState::exp_avg:
      return StateKind::exp_avg;
    case OptimizerState::exp_avg_sq:
      return StateKind::exp_avg_sq;
    case OptimizerState::master:
      break;
  }
  return StateKind::master;
}

// The memory of a state of this rank's shard of the param. `count` must be its number of elements.
Result<Optimizer::Place> find_part(Optimizer& optimizer, const Param& param, OptimizerState which,
                                   uint64_t count) {
  MERON_TRY(optimizer.check_idle());
  MERON_ASSIGN(const Optimizer::Place place, optimizer.place(param, which));
  if (place.slice.size() == count) return place;
  return Error(MERON_E_ARGUMENT,
               fmt::format("this rank owns {} elements of param '{}', {} were given",
                           place.slice.size(), param.desc.name, count),
               "pass as many elements as the rank owns of the param")
      .on(param.desc.name);
}

}  // namespace

Status Context::read_state(Optimizer& optimizer, const Param& param, OptimizerState which,
                           uint64_t count, float* out) {
  // States on nvme pass through one memory, a save's too.
  const bool shares = optimizer.nvme_bytes() > 0;
  MERON_ASSIGN([[maybe_unused]] const Turn turn, shares ? turn_when_copied() : this->turn());
  auto held = lock();
  MERON_ASSIGN(const Optimizer::Place place, find_part(optimizer, param, which, count));
  if (count == 0) return Ok{};
  const UnitState unit(*param.unit, &optimizer);
  const State state{param.place.flat, kind_of(which), DType::f32};
  return unit.read(state, {place.first, place.first + count}, reinterpret_cast<std::byte*>(out));
}

Status Context::write_state(Optimizer& optimizer, const Param& param, OptimizerState which,
                            uint64_t count, const float* data) {
  MERON_ASSIGN([[maybe_unused]] const Turn turn, turn_when_copied());
  auto held = lock();
  MERON_ASSIGN(const Optimizer::Place place, find_part(optimizer, param, which, count));
  if (which == OptimizerState::master && !place.states->shape().master) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the master of param '{}' is the param itself", param.desc.name),
                 "write it through an update")
        .on(param.desc.name);
  }
  if (count == 0) return Ok{};
  const UnitState unit(*param.unit, &optimizer);
  const State state{param.place.flat, kind_of(which), DType::f32};
  return unit.write(state, {place.first, place.first + count},
                    reinterpret_cast<const std::byte*>(data));
}

}  // namespace meron
