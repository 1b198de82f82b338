// SPDX-License-Identifier: Apache-2.0
#include "optim/cohorts.h"

#include <iterator>

#include "base/hash.h"
#include "unit/unit.h"

namespace meron {

const Cohort& Cohorts::of(const Param& param) const {
  static constexpr Cohort kUsual;
  const auto found = special_.find(&param);
  return found == special_.end() ? kUsual : found->second;
}

void Cohorts::set(const Param& param, const Cohort& cohort) {
  if (cohort == Cohort{}) {
    special_.erase(&param);
  } else {
    special_[&param] = cohort;
  }
}

void Cohorts::index() {
  all_ = {Cohort{}};
  indices_ = {{Cohort{}, 0}};
  for (const auto& [param, cohort] : special_) {
    if (indices_.emplace(cohort, all_.size()).second) all_.push_back(cohort);
  }
}

std::vector<CohortRun> Cohorts::runs(const UnitShape& unit, size_t flat) const {
  std::vector<CohortRun> out;
  for (const auto& param : unit.params()) {  // a layout places them in this order
    if (param->place.flat != flat) continue;
    const size_t cohort = indices_.at(of(*param));
    const uint64_t end = param->place.offset + round_up(param->count, kTensorAlign);
    if (!out.empty() && out.back().cohort == cohort) {
      out.back().end = end;
    } else if (end > param->place.offset) {
      out.push_back({end, cohort});
    }
  }
  return out;
}

void Cohorts::skip(const std::vector<const Param*>& params) {
  for (auto it = special_.begin(); it != special_.end();) {
    it->second.skipped = false;
    it = it->second == Cohort{} ? special_.erase(it) : std::next(it);
  }
  for (const Param* param : params) special_[param].skipped = true;
}

void Cohorts::count_step() {
  for (auto& [param, cohort] : special_) cohort.behind += cohort.skipped ? 1 : 0;
  for (Cohort& cohort : all_) cohort.behind += cohort.skipped ? 1 : 0;
}

void Cohorts::catch_up() {
  for (auto it = special_.begin(); it != special_.end();) {
    it->second.behind = 0;
    it = it->second == Cohort{} ? special_.erase(it) : std::next(it);
  }
}

// A sum, because the order of the map differs between ranks.
uint64_t Cohorts::fingerprint() const {
  uint64_t sum = 0;
  for (const auto& [param, cohort] : special_) {
    const uint64_t numbers =
        hash_combine(static_cast<uint64_t>(cohort.behind), cohort.skipped ? 1 : 0);
    const uint64_t name = hash_combine(param->unit->name_hash(), hash_text(param->desc.name));
    sum += hash_combine(hash_combine(name, cohort.group), numbers);
  }
  return sum;
}

}  // namespace meron
