// SPDX-License-Identifier: Apache-2.0
// Plans for several nodes that are presets with changes. preset() takes their names, so that a user
// can request the plan that `meron plan --cluster` prints first.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace meron {

std::vector<std::string_view> hybrid_names();

// The hybrid of this name, or nothing.
std::optional<Result<Plan>> hybrid(std::string_view name);

}  // namespace meron
