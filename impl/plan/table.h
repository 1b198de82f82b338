// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/plan.h"

namespace meron {

// The plan as a table, a line per kind; columns: sharded over, tier, dtype, wire codec. Several
// lines, each ended by '\n'.
std::string to_table(const Plan& plan);

}  // namespace meron
