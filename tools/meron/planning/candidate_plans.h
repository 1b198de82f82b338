// SPDX-License-Identifier: Apache-2.0
// The plans that are worth comparing on a cluster. Internal to this folder.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tools/meron/planning/cluster.h"

namespace meron::planning {

// zero0 to zero3, mics at every sensible size of the shard axis, hpz, zeropp, and for several nodes
// the hybrids. Simple ones first: of two that cost the same, the earlier is preferred.
std::vector<Plan> strategies_for(const Cluster& cluster);

}  // namespace meron::planning
