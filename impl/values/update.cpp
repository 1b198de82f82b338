// SPDX-License-Identifier: Apache-2.0
#include "values/update.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"
#include "quant/wire.h"

namespace meron {

UpdateOperation::UpdateOperation(std::vector<std::shared_ptr<Unit>> units, Deadline deadline)
    : Operation(units.front()->channel(), deadline), units_(std::move(units)) {}

std::shared_ptr<UpdateOperation> UpdateOperation::prepare(std::vector<std::shared_ptr<Unit>> units,
                                                          Deadline deadline) {
  return std::shared_ptr<UpdateOperation>(new UpdateOperation(std::move(units), deadline));
}

Status UpdateOperation::begin(uint64_t sequence) {
  set_sequence(sequence);
  for (const auto& unit : units_) MERON_TRY(unit->release_version());
  channel_.transport().ring();
  return Ok{};
}

Result<bool> UpdateOperation::advance() {
  for (const auto& unit : units_) {
    if (!unit->all_released()) return false;
  }
  const bool stores =
      std::any_of(units_.begin(), units_.end(), [](const auto& unit) { return unit->stores(); });
  if (!opened_) {
    if (stores && !units_.front()->may_change(0)) return false;
    opened_ = true;
    for (const auto& unit : units_) {
      Status open = unit->open_change(false);
      if (!open.ok()) return channel_.fail(std::move(open).error());
    }
  }
  // Values that the update does not write must be in memory unchanged, even if kept packed or on
  // nvme.
  bool ready = true;
  for (const auto& unit : units_) {
    Result<bool> changeable = unit->changeable();
    if (!changeable.ok()) return channel_.fail(std::move(changeable).error());
    ready = ready && *changeable;
  }
  return ready;
}

std::vector<int> UpdateOperation::missing() const {
  for (const auto& unit : units_) {
    auto late = unit->unreleased();
    if (!late.empty()) return late;
  }
  return {};
}

std::string UpdateOperation::waits_for_drive() const {
  for (const auto& unit : units_) {
    if (std::string text = unit->drive_text(); !text.empty()) return text;
  }
  return opened_ || units_.front()->may_change(0)
             ? std::string()
             : units_.front()->rank().drive.storing.front()->drive_text();
}

std::string UpdateOperation::describe() const {
  if (units_.size() == 1) return fmt::format("update of unit '{}'", units_.front()->name());
  return fmt::format("update of {} units from '{}' on", units_.size(), units_.front()->name());
}

bool UpdateOperation::contains(const Param& param) const {
  return std::any_of(units_.begin(), units_.end(),
                     [&](const auto& unit) { return param.unit == unit.get(); });
}

Range UpdateOperation::view(const Param& param, std::byte** data) {
  Flat& flat = param.unit->flat_of(param);
  const Range part = part_of(param, flat.owned);
  *data = flat.own(param.place.offset + part.begin);
  touched_ = true;
  if (std::find(viewed_.begin(), viewed_.end(), &param) == viewed_.end()) {
    viewed_.push_back(&param);
  }
  return part;
}

Status UpdateOperation::write(const Param& param, const std::byte* data, DType dtype) {
  Flat& flat = param.unit->flat_of(param);
  const Range part = part_of(param, flat.owned);
  touched_ = true;
  if (part.size() == 0) return Ok{};
  const std::byte* source = data + part.begin * size_of(dtype);
  const uint64_t first = param.place.offset + part.begin;  // in the flat
  std::byte* const values = flat.own(first);
  {
    const Recess recess(part.size() >= kInlineElements);
    if (dtype == flat.desc.dtype && param.unit->read_by_peers() && !flat.coded()) {
      kernels::hand_over(values, source, part.size() * size_of(dtype));
    } else {
      kernels::convert(values, kernel_type(flat.desc.dtype), source, kernel_type(dtype),
                       part.size());
    }
  }
  if (flat.master != nullptr) {
    Status put = flat.master->put(first, source, dtype, part.size());
    if (!put.ok()) return channel_.fail(std::move(put).error().on(param.desc.name));
  }
  std::erase(viewed_, &param);
  return Ok{};
}

Status UpdateOperation::publish() {
  if (published_) {
    return Error(MERON_E_STALE, "the update was published already", "begin another update");
  }
  published_ = true;
  for (const Param* param : viewed_) {
    Flat& flat = param->unit->flat_of(*param);
    const Range part = part_of(*param, flat.owned);
    if (flat.master == nullptr || part.size() == 0) continue;
    const uint64_t first = param->place.offset + part.begin;
    Status put = flat.master->put(first, flat.own(first), flat.desc.dtype, part.size());
    if (!put.ok()) return channel_.fail(std::move(put).error().on(param->desc.name));
  }
  for (const auto& unit : units_) {
    if (Status done = unit->publish(true); !done.ok())
      return channel_.fail(std::move(done).error());
  }
  channel_.transport().ring();
  return Ok{};
}

}  // namespace meron
