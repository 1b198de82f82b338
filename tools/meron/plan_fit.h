// SPDX-License-Identifier: Apache-2.0
// The answer of `meron plan --memory`: whether a prediction fits into the memory of a machine.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "meron/plan.h"

namespace meron::tools {

// Memory that the ranks of one machine need, and that it has. With a plan on devices, of each rank.
struct Fit {
  bool on_device = false;
  uint64_t ranks = 0;  // that share the memory
  uint64_t needed = 0;
  uint64_t available = 0;

  bool fits() const { return needed <= available; }
};

// `prediction`: the library's, in JSON. `available`: bytes.
Fit fit_of(const nlohmann::ordered_json& prediction, const meron_workload& workload,
           uint64_t available);

std::string sentence(const Fit& fit);

// The prediction with the answer to --memory (0: not asked), and what no prediction counts.
nlohmann::ordered_json with_fit(nlohmann::ordered_json prediction, const meron_workload& workload,
                                uint64_t available);

}  // namespace meron::tools
