// SPDX-License-Identifier: Apache-2.0
// A recorded order of uses, prepared for two questions: when is a unit used next, and how many
// elements of uses lie in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace meron {

class OrderIndex {
 public:
  static constexpr size_t kNever = SIZE_MAX;

  OrderIndex() = default;
  // `uses`: units, as numbers below elements.size().
  OrderIndex(std::vector<uint32_t> uses, std::span<const uint64_t> elements);

  size_t size() const { return uses_.size(); }
  uint32_t operator[](size_t place) const { return uses_[place]; }
  const std::vector<uint32_t>& uses() const { return uses_; }

  // The first place at or after `from` at which a unit is used.
  size_t next(size_t unit, size_t from) const;
  // Elements of the uses from place `from` up to, without, place `to`.
  uint64_t distance(size_t from, size_t to) const { return before_[to] - before_[from]; }

 private:
  std::vector<uint32_t> uses_;
  std::vector<uint64_t> before_ = {0};  // before_[i]: elements of the uses before place i
  // The places of unit u, ascending, are places_[first_[u]] to places_[first_[u + 1]].
  std::vector<uint32_t> places_;
  std::vector<uint32_t> first_;
};

}  // namespace meron
