// SPDX-License-Identifier: Apache-2.0
// The plans that are worth comparing on a cluster. Internal to this folder.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "plan/cluster.h"
#include "plan/plan.h"

namespace meron {

// zero0 to zero3, mics at every sensible size of the shard axis, hpz, zeropp, and for several nodes
// the hybrids. Simple ones first: of two that cost the same, the earlier is preferred.
std::vector<Plan> strategies_for(const Cluster& cluster);

// One of these that is not a named preset, by its name. preset() takes it too, so a user can
// request the plan that a ranking prints first.
std::optional<Result<Plan>> hybrid(std::string_view name);

}  // namespace meron
