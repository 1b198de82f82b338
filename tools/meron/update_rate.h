// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace meron::tools {

// Elements a second that this host updates by AdamW with f32 states in memory, on all its cores:
// optimizer steps of one rank by the library, as a job takes them. Takes about a second.
uint64_t update_rate();

}  // namespace meron::tools
