// SPDX-License-Identifier: Apache-2.0
#include "schedule/order_index.h"

#include <algorithm>

namespace meron {

OrderIndex::OrderIndex(std::vector<uint32_t> uses, std::span<const uint64_t> elements)
    : uses_(std::move(uses)), places_(uses_.size()), first_(elements.size() + 1, 0) {
  before_.reserve(uses_.size() + 1);
  for (const uint32_t unit : uses_) {
    before_.push_back(before_.back() + elements[unit]);
    ++first_[unit + 1];
  }
  for (size_t unit = 0; unit < elements.size(); ++unit) first_[unit + 1] += first_[unit];
  std::vector<uint32_t> filled(first_.begin(), first_.end() - 1);
  for (size_t place = 0; place < uses_.size(); ++place) {
    places_[filled[uses_[place]]++] = static_cast<uint32_t>(place);
  }
}

size_t OrderIndex::next(size_t unit, size_t from) const {
  if (uses_.empty()) return kNever;
  const auto begin = places_.begin() + first_[unit];
  const auto end = places_.begin() + first_[unit + 1];
  const auto found = std::lower_bound(begin, end, from);
  return found == end ? kNever : *found;
}

}  // namespace meron
