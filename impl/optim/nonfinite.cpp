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
    Unit& unit = *units[u];
    if (!unit.gradient().squares.nonfinite()) continue;
    place.unit = static_cast<uint32_t>(u);
    const GradientMemory& memory = unit.gradient().memory();
    if (memory.on_device()) return place;
    for (size_t f = 0; f < unit.flats().size(); ++f) {
      const Flat& flat = unit.flats()[f];
      if (!flat.desc.trainable || memory.sum(f) == nullptr) continue;
      for (uint64_t i = flat.part.begin; i < flat.part.end; ++i) {
        if (std::isfinite(memory.sum(f)[i - flat.summed.begin])) continue;
        place = place_in(unit, f, i);
        place.unit = static_cast<uint32_t>(u);
        return place;
      }
    }
    return place;
  }
  return place;
}

std::string text_of(const NonFinitePlace& place, const Unit& unit, int rank) {
  if (place.param >= unit.params().size()) {
    return fmt::format("unit '{}', in the shard of rank {}", unit.name(), rank);
  }
  return fmt::format("'{}' of unit '{}', element {}, in the shard of rank {}",
                     unit.params()[place.param]->desc.name, unit.name(), place.element, rank);
}

std::string text_of(const NonFinitePlace& place, std::span<const std::shared_ptr<Unit>> units,
                    int rank) {
  if (place.unit < units.size()) return text_of(place, *units[place.unit], rank);
  return fmt::format("in the shard of rank {}", rank);
}

}  // namespace meron
