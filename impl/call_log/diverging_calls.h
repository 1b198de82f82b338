// SPDX-License-Identifier: Apache-2.0
// The error of ranks that made different calls in the same place: MERON_E_MISMATCH.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "call_log/call.h"

namespace meron {

// `peer` made another call than this `rank`. `difference`: what the two call texts do not show, or
// empty.
Error diverging_calls(uint64_t sequence, int rank, const CallRecord& own, int peer,
                      const CallRecord& other, std::string difference);

}  // namespace meron
