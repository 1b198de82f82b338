// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace meron {

// Returns a JSON description of this host and this build, which `meron info --json` prints.
std::string system_info_json();

}  // namespace meron
