// SPDX-License-Identifier: Apache-2.0
// The cohort of each param of an optimizer: its group, its count of steps, and whether steps skip
// it. A step updates all params of a cohort with the same numbers.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "unit/shape.h"

namespace meron {

struct Cohort {
  uint32_t group = 0;
  int64_t behind = 0;    // steps of the optimizer less those that counted for the params
  bool skipped = false;  // the next steps leave the params as they are

  auto operator<=>(const Cohort&) const = default;
};

// Elements of a flat up to `end`, from the end of the run before, belong to one cohort. The last
// run ends the flat.
struct CohortRun {
  uint64_t end = 0;
  size_t cohort = 0;  // index in Cohorts::all()
};

class Cohorts {
 public:
  const std::vector<Cohort>& all() const { return all_; }
  const Cohort& of(const Param& param) const;
  // Changes the cohort of a param. index() has to follow before all() and runs() are used.
  void set(const Param& param, const Cohort& cohort);
  void index();
  std::vector<CohortRun> runs(const UnitShape& unit, size_t flat) const;

  // Makes `params` those that are skipped.
  void skip(const std::vector<const Param*>& params);
  // Counts a step, which the skipped params fall behind.
  void count_step();
  // No param is behind any more.
  void catch_up();
  // Hash of everything that must be equal on all ranks.
  uint64_t fingerprint() const;

 private:
  std::vector<Cohort> all_{Cohort{}};
  std::map<Cohort, size_t> indices_{{Cohort{}, 0}};
  std::map<const Param*, Cohort> special_;  // params whose cohort is not Cohort{}
};

}  // namespace meron
