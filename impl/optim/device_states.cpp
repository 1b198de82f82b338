// SPDX-License-Identifier: Apache-2.0
#include "optim/device_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gradient/gradient.h"
#include "kernels/cpu/accumulate.h"
#include "quant/wire.h"

namespace meron {
namespace {

meron_update_step numbers_of(const kernels::UpdateStep& step) {
  meron_update_step out = {};
  out.rule = static_cast<int32_t>(step.rule);
  out.nesterov = step.nesterov ? 1 : 0;
  out.first_step = step.first_step ? 1 : 0;
  out.learning_rate = step.lr;
  out.beta1 = step.beta1;
  out.beta2 = step.beta2;
  out.epsilon = step.eps;
  out.weight_decay = step.weight_decay;
  out.bias1 = step.bias1;
  out.bias2 = step.bias2;
  out.gradient_scale = step.grad_scale;
  out.dampening = step.dampening;
  return out;
}

}  // namespace

Result<std::unique_ptr<DeviceStates>> DeviceStates::create(Unit& unit, size_t flat,
                                                           const StateShape& shape) {
  std::unique_ptr<DeviceStates> states(new DeviceStates(unit, flat, shape));
  Rank& rank = unit.rank();
  const uint64_t elements = states->flat().owned.size();
  const auto take = [&](uint64_t bytes, const char* what) -> Result<DeviceMemory> {
    add(rank.counters.device.held, bytes);
    states->bytes_ += bytes;
    return rank.device->device().allocate(bytes, rank.device->work(),
                                          fmt::format("{} of unit '{}'", what, unit.name()));
  };
  constexpr std::array kWhich = {"the first state", "the second state"};
  for (uint32_t s = 0; s < shape.states; ++s) {
    MERON_ASSIGN(states->states_[s], take(state_bytes(shape.dtype, elements), kWhich[s]));
  }
  if (shape.master) {
    MERON_ASSIGN(states->master_, take(elements * sizeof(float), "the master copy"));
  }
  return states;
}

DeviceStates::~DeviceStates() {
  unit_.rank().counters.device.held.fetch_sub(bytes_);
}

// Start of the values that this rank updates. On the device it may hold its full shard, and update
// one sub-shard of it.
std::byte* DeviceStates::owned_values() const {
  const Flat& flat = this->flat();
  return flat.on_device->data() + (flat.owned.begin - flat.rest.begin) * size_of(flat.desc.dtype);
}

Status DeviceStates::fill() {
  Device& device = side().device();
  void* const work = side().work();
  for (const DeviceMemory& state : states_) {
    if (state) MERON_TRY(device.fill(state.data(), 0, state.bytes(), work));
  }
  if (!master_) return Ok{};
  const meron_cast_task task{master_.data(), owned_values(), flat().owned.size()};
  return device.cast(std::span(&task, 1), DType::f32, flat().desc.dtype, false, work);
}

Result<const float*> DeviceStates::gradient(DeviceMemory& room) const {
  const Flat& flat = this->flat();
  const GradientMemory& memory = unit_.gradient().memory();
  const float* const sum = memory.sum(flat_) + (flat.owned.begin - flat.summed.begin);
  if (memory.on_device()) return sum;
  Device& device = side().device();
  const uint64_t bytes = flat.owned.size() * sizeof(float);
  MERON_ASSIGN(room,
               device.allocate(bytes, side().work(),
                               fmt::format("the reduced gradient of unit '{}'", unit_.name())));
  // Memory that is not pinned: it has been read when this returns.
  MERON_TRY(device.copy(room.data(), sum, bytes, side().work()));
  add(unit_.rank().counters.device.up, bytes);
  return reinterpret_cast<const float*>(room.data());
}

Status DeviceStates::update(const std::vector<DeviceRun>& runs) {
  const Flat& flat = this->flat();
  DeviceMemory room;  // goes back behind the update
  MERON_ASSIGN(const float* const sum, gradient(room));
  const uint64_t size = size_of(flat.desc.dtype);
  for (const DeviceRun& run : runs) {
    const uint64_t offset = run.range.begin - flat.owned.begin;
    std::byte* const values = owned_values() + offset * size;
    meron_update_task task = {};
    task.values = master_ ? reinterpret_cast<float*>(master_.data()) + offset
                          : reinterpret_cast<float*>(values);
    task.sum = sum + offset;
    for (uint32_t s = 0; s < shape_.states; ++s) {
      task.states[s] = states_[s].data() + state_bytes(shape_.dtype, offset);
    }
    task.out = master_ ? values : nullptr;
    task.count = run.range.size();
    task.first = run.range.begin;
    task.seed = run.step.seed;
    MERON_TRY(side().device().update(
        numbers_of(run.step), std::span(&task, 1),
        shape_.dtype == StateDType::bf16 ? MERON_STATE_TYPE_BF16 : MERON_STATE_TYPE_F32,
        flat.desc.dtype, side().work()));
  }
  return Ok{};
}

Result<std::optional<uint64_t>> DeviceStates::find_overflow() const {
  constexpr uint64_t kPiece = 1 << 20;
  const Flat& flat = this->flat();
  const uint64_t count = master_ ? flat.owned.size() : 0;
  const uint64_t size = size_of(flat.desc.dtype);
  Device& device = side().device();
  const auto fetch = [&](void* to, const std::byte* from, uint64_t bytes) -> Status {
    MERON_TRY(device.copy(to, from, bytes, side().work()));
    add(unit_.rank().counters.device.down, bytes);
    return device.synchronize(side().work());
  };
  std::vector<std::byte> narrow(std::min(count, kPiece) * size);
  std::vector<float> wide(std::min(count, kPiece));
  for (uint64_t at = 0; at < count; at += kPiece) {
    const uint64_t elements = std::min(kPiece, count - at);
    MERON_TRY(fetch(narrow.data(), owned_values() + at * size, elements * size));
    kernels::convert(wide.data(), kernels::Type::f32, narrow.data(), kernel_type(flat.desc.dtype),
                     elements);
    for (uint64_t i = 0; i < elements; ++i) {
      if (std::isfinite(wide[i])) continue;
      float master = 0;
      MERON_TRY(fetch(&master, master_.data() + (at + i) * sizeof(float), sizeof(master)));
      if (std::isfinite(master)) return std::optional<uint64_t>(flat.owned.begin + at + i);
    }
  }
  return std::optional<uint64_t>();
}

DeviceStates::Slice DeviceStates::slice_of(int state, const Range& range) const {
  const uint64_t first = range.begin - flat().owned.begin;
  if (state == kMaster) {
    return {master_.data() + first * sizeof(float), 0, range.size() * sizeof(float)};
  }
  const auto index = static_cast<uint32_t>(state);
  return {states_[index].data() + state_bytes(shape_.dtype, first),
          shape_.state_offset(range.size(), index), state_bytes(shape_.dtype, range.size())};
}

Status DeviceStates::read(int state, const Range& range, std::byte* record) const {
  const Slice slice = slice_of(state, range);
  MERON_TRY(side().device().copy(record + slice.offset, slice.data, slice.bytes, side().work()));
  add(unit_.rank().counters.device.down, slice.bytes);
  return side().device().synchronize(side().work());
}

Status DeviceStates::write(int state, const Range& range, const std::byte* record) {
  const Slice slice = slice_of(state, range);
  MERON_TRY(side().device().copy(slice.data, record + slice.offset, slice.bytes, side().work()));
  add(unit_.rank().counters.device.up, slice.bytes);
  return side().device().synchronize(side().work());
}

}  // namespace meron
