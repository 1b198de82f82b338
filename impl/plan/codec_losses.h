// SPDX-License-Identifier: Apache-2.0
// Codecs of a plan that are known to cost accuracy in training.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace meron {

// Returns a warning for each codec with which models train worse: the measured loss, and a better
// codec. Empty for a plan without one. docs/plan.md has the table of all codecs.
std::vector<std::string> codec_losses(const Plan& plan);

}  // namespace meron
