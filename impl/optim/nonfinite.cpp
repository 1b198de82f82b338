// SPDX-License-Identifier: Apache-2.0
#include "optim/nonfinite.h"

#include <fmt/format.h>

#include <cmath>

#include "gradient/gradient.h"
#include "gradient/memory.h"

namespace meron {
namespace {

// The param whose gradient has `element` of a flat; none: padding, which is always zero.
void name_param(const Unit& unit, size_t flat, uint64_t element, NonFinitePlace& place) {
  for (size_t p = 0; p < unit.params().size(); ++p) {
    const TensorPlace& tensor = unit.params()[p]->place;
    if (tensor.flat != flat || element < tensor.offset) continue;
    if (element >= tensor.offset + tensor.elements) continue;
    place.param = static_cast<uint32_t>(p);
    place.element = element - tensor.offset;
  }
}

}  // namespace

NonFinitePlace find_nonfinite(std::span<const std::shared_ptr<Unit>> units) {
  NonFinitePlace place;
  for (size_t u = 0; u < units.size(); ++u) {
    const auto& found = units[u]->gradient().nonfinite;
    if (!found) continue;
    place.unit = static_cast<uint32_t>(u);
    place.kind = NonFinitePlace::Kind::encoded;
    name_param(*units[u], found->flat, found->element, place);
    return place;
  }
  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = *units[u];
    if (!unit.gradient().squares.nonfinite()) continue;
    place.unit = static_cast<uint32_t>(u);
    if (unit.axes().replicas() && unit.gradient().codec.blocked()) {
      place.kind = NonFinitePlace::Kind::decoded;
    }
    const GradientMemory& memory = unit.gradient().memory();
    if (memory.on_device()) return place;
    for (size_t f = 0; f < unit.flats().size(); ++f) {
      const Flat& flat = unit.flats()[f];
      if (!flat.desc.trainable || memory.sum(f) == nullptr) continue;
      for (uint64_t i = flat.part.begin; i < flat.part.end; ++i) {
        if (std::isfinite(memory.sum(f)[i - flat.summed.begin])) continue;
        name_param(unit, f, i, place);
        return place;
      }
    }
    return place;
  }
  return place;
}

std::string text_of(const NonFinitePlace& place, std::span<const std::shared_ptr<Unit>> units,
                    int rank) {
  const std::string where = place.kind == NonFinitePlace::Kind::encoded
                                ? fmt::format("in the gradient that rank {} encoded", rank)
                                : fmt::format("in the shard of rank {}", rank);
  if (place.unit >= units.size()) return where;
  const Unit& unit = *units[place.unit];
  if (place.param >= unit.params().size()) {
    return fmt::format("unit '{}', {}", unit.name(), where);
  }
  const bool block = place.kind == NonFinitePlace::Kind::decoded;
  return fmt::format("'{}' of unit '{}', element {}{}, {}", unit.params()[place.param]->desc.name,
                     unit.name(), place.element, block ? " or another of its codec's block" : "",
                     where);
}

}  // namespace meron
