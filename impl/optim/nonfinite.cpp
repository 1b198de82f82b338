// SPDX-License-Identifier: Apache-2.0
#include "optim/nonfinite.h"

#include <fmt/format.h>

#include <cmath>

#include "gradient/gradient.h"
#include "gradient/memory.h"

namespace meron {

NonFinitePlace place_in(const Unit& unit, size_t flat, uint64_t element) {
  NonFinitePlace place;
  for (size_t p = 0; p < unit.params().size(); ++p) {
    const TensorPlace& tensor = unit.params()[p]->place;
    if (tensor.flat != flat || element < tensor.offset) continue;
    if (element >= tensor.offset + tensor.elements) continue;
    place.param = static_cast<uint32_t>(p);
    place.element = element - tensor.offset;
  }
  return place;
}

NonFinitePlace find_nonfinite(std::span<const std::shared_ptr<Unit>> units) {
  NonFinitePlace place;
  for (size_t u = 0; u < units.size(); ++u) {
    const auto& found = units[u]->gradient().nonfinite;
    if (!found) continue;
    place = place_in(*units[u], found->flat, found->element);
    place.unit = static_cast<uint32_t>(u);
    place.kind = NonFinitePlace::Kind::encoded;
    return place;
  }
  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = *units[u];
    if (!unit.gradient().squares->nonfinite()) continue;
    place.unit = static_cast<uint32_t>(u);
    const bool decoded = unit.axes().replicas() && unit.gradient().codec.blocked();
    if (decoded) place.kind = NonFinitePlace::Kind::decoded;
    const GradientMemory& memory = unit.gradient().memory();
    if (memory.on_device()) return place;
    for (size_t f = 0; f < unit.flats().size(); ++f) {
      const Flat& flat = unit.flats()[f];
      if (!flat.desc.trainable || memory.sum(f) == nullptr) continue;
      for (uint64_t i = flat.part.begin; i < flat.part.end; ++i) {
        if (std::isfinite(memory.sum(f)[i - flat.summed.begin])) continue;
        const NonFinitePlace found = place_in(unit, f, i);
        place.param = found.param;
        place.element = found.element;
        return place;
      }
    }
    return place;
  }
  return place;
}

namespace {

std::string finder_of(const NonFinitePlace& place, int rank) {
  return place.kind == NonFinitePlace::Kind::encoded
             ? fmt::format("in the gradient that rank {} encoded", rank)
             : fmt::format("in the shard of rank {}", rank);
}

}  // namespace

std::string text_of(const NonFinitePlace& place, const Unit& unit, int rank) {
  const std::string finder = finder_of(place, rank);
  if (place.param >= unit.params().size()) {
    return fmt::format("unit '{}', {}", unit.name(), finder);
  }
  const bool block = place.kind == NonFinitePlace::Kind::decoded;
  return fmt::format("'{}' of unit '{}', element {}{}, {}", unit.params()[place.param]->desc.name,
                     unit.name(), place.element, block ? " or another of its codec's block" : "",
                     finder);
}

std::string text_of(const NonFinitePlace& place, std::span<const std::shared_ptr<Unit>> units,
                    int rank) {
  if (place.unit < units.size()) return text_of(place, *units[place.unit], rank);
  return finder_of(place, rank);
}

}  // namespace meron
