// SPDX-License-Identifier: Apache-2.0
// How a gather's values come into the caller's memory, of the host or of the device.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "values/gather.h"
#include "values/parallel_copy.h"

namespace meron {
namespace {

// Copies between places of the device, which one kernel makes for all of a type: each copy by
// itself takes a call of the driver.
class DeviceCopies {
 public:
  void add(Unit& unit, DType type, const meron_cast_task& task) {
    if (task.count != 0) tasks_[{&unit, type}].push_back(task);
  }
  Status ask() const {
    for (const auto& [what, tasks] : tasks_) {
      MERON_TRY(what.first->on_device()->copy_out(tasks, what.second));
    }
    return Ok{};
  }

 private:
  std::map<std::pair<Unit*, DType>, std::vector<meron_cast_task>> tasks_;
};

}  // namespace

GatherTarget GatherTarget::of_param(const Param& param) {
  GatherTarget target;
  target.unit = param.unit;
  target.flat = param.place.flat;
  target.elements = {param.place.offset, param.place.offset + param.count};
  target.param = &param;
  return target;
}

GatherTarget GatherTarget::of_flat(Unit& unit, size_t flat) {
  GatherTarget target;
  target.unit = &unit;
  target.flat = flat;
  target.elements = {0, unit.flats()[flat].desc.elements};
  return target;
}

uint64_t GatherTarget::bytes() const {
  return elements.size() * size_of(unit->flats()[flat].desc.dtype);
}

bool GatherTarget::has(const Param& other) const {
  if (param != nullptr) return param == &other;
  return unit == other.unit && flat == other.place.flat;
}

Result<bool> GatherOperation::copy_targets() {
  const bool first = !std::exchange(asked_, true);
  Status copied = first ? ask_for_copies() : Ok{};
  if (copied.ok() && upload_) copied = upload_->advance(units_.front()->rank().threads);
  const bool done = !copied.ok() || upload_ == nullptr || upload_->done();
  // Once for all, because the wake-up is queued between copies. Also after an error, because queued
  // copies are still read.
  if (targets_on_device_ && (first || done)) {
    Status noted = note_copies();
    if (copied.ok()) copied = std::move(noted);
  }
  if (!copied.ok()) return std::move(copied).error();
  return done;
}

// Piece by piece: who releases the gather meanwhile may take the memory back soon.
void GatherOperation::copy_to_caller(Rank& rank, std::byte* to, const std::byte* from,
                                     uint64_t bytes) const {
  constexpr uint64_t kPiece = uint64_t{8} << 20;
  for (uint64_t at = 0; at < bytes && !given_up_; at += kPiece) {
    parallel_copy(rank, to + at, from + at, std::min(kPiece, bytes - at));
  }
}

Status GatherOperation::note_copies() {
  Status all = Ok{};
  for (const auto& unit : units_) {
    Status noted = unit->on_device()->note_copies();
    if (all.ok()) all = std::move(noted);
  }
  return all;
}

Status GatherOperation::ask_for_copies() {
  if (targets_on_device_) {
    for (const auto& unit : units_) MERON_TRY(unit->on_device()->begin_copies());
  }
  DeviceCopies there;
  for (const GatherTarget& target : targets_) {
    Unit& unit = *target.unit;
    const Flat& flat = unit.flats()[target.flat];
    const uint64_t size = size_of(flat.desc.dtype), offset = target.elements.begin * size;
    const uint64_t count = target.elements.size(), bytes = target.bytes();
    const std::byte* const values = flat.writable + offset;
    Rank& rank = unit.rank();
    if (by_devices_ || (target.on_device && only_on_device_ && unit.whole_on_device())) {
      const std::byte* const whole =
          by_devices_ ? unit.on_device()->data(target.flat) : flat.on_device->data();
      if (reinterpret_cast<uintptr_t>(target.data) % size == 0) {
        there.add(unit, flat.desc.dtype, {target.data, whole + offset, count});
      } else {  // which a kernel cannot write
        MERON_TRY(unit.on_device()->copy_out(target.data, whole + offset, bytes));
      }
    } else if (target.on_device) {
      if (unit.stages_values()) {
        if (upload_ == nullptr) upload_ = std::make_unique<Upload>(*rank.device);
        upload_->add(target.data, values, bytes);
      } else {
        MERON_TRY(unit.on_device()->copy_out(target.data, values, bytes));
      }
      add(rank.counters.device.up, bytes);
    } else {
      copy_to_caller(rank, target.data, values, bytes);
      if (given_up_) return Ok{};
    }
    // If other nodes hold some of it, the staged bytes were counted already.
    const bool local = by_devices_ ? channel_.link() == nullptr : !unit.stages_values();
    if (is_sharded(rank.plan.param) && local) {
      add(rank.counters.gather_copied, (count - overlap(target.elements, flat.rest).size()) * size);
    }
  }
  return there.ask();
}

}  // namespace meron
